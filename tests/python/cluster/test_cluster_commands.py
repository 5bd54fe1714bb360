"""`vicinal up`, `down` and the commands between them, with real containers."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT, Vicinal, error_line, without_waiting
from launch_support import GUARD_SECONDS, MPIS, NOBODY, package_path, unprivileged_python

from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.layout import NODE_MARK
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import create

NODES = 3


class Trial:
    """A cluster with its own name and its own state directory."""

    def __init__(self, directory: Path, user: int) -> None:
        self.name = f"t{secrets.token_hex(5)}"
        self.directory = directory
        self.file = directory / "cluster.yaml"
        self.state = directory / "vicinal/clusters"
        self.region = Path(f"/dev/shm/vicinal-{user}-{self.name}")
        self.write()

    def write(self, nodes: int = NODES, runtime: str | None = None) -> None:
        chosen = f", runtime: {runtime}" if runtime else ""
        self.file.write_text(
            f"name: {self.name}\n"
            f"nodes: [{{name: node, count: {nodes}{chosen}, mounts: [{self.directory}]}}]\n"
            "region: {members: 24}\n"
        )

    def left(self) -> list[str]:
        """What remains of the cluster: processes, the region, the journal, states of containers."""
        found = [str(path) for path in (self.region, self.state / self.name) if path.exists()]
        found += [str(path) for path in Path("/run").glob(f"vicinal-containers/{self.name}*")]
        found += [str(path) for path in Path("/tmp").glob(f"vicinal-containers-*/{self.name}*")]
        found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/*{self.name}*")]
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                variables = process.environ()
                if NODE_MARK in variables and variables.get("XDG_STATE_HOME") == str(
                    self.directory
                ):
                    found.append(str(process))
        return found


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vicinal: Vicinal) -> Iterator[Trial]:
    trial = Trial(tmp_path, os.geteuid())
    monkeypatch.setenv("XDG_STATE_HOME", str(trial.directory))
    yield trial
    done = vicinal("down", trial.name)
    assert done.returncode == 0, done
    assert trial.left() == []


def nodes_of(vicinal: Vicinal, trial: Trial) -> dict[str, str]:
    state = json.loads(vicinal("status", trial.name, "--json").stdout)
    return {node["name"]: node["state"] for node in state["nodes"]}


@pytest.mark.parametrize("runtime", ["crun", pytest.param("bubblewrap", marks=pytest.mark.long)])
def test_from_nothing_to_a_job_and_back(vicinal: Vicinal, trial: Trial, runtime: str) -> None:
    trial.write(runtime=runtime)
    planned = vicinal("plan", trial.file)
    assert planned.returncode == 2
    assert planned.stdout.splitlines()[-1] == f"{NODES + 2} to create"
    assert trial.left() == []
    up = vicinal("up", trial.file)
    assert up.returncode == 0, up.stderr
    planned = vicinal("plan", trial.file)
    assert planned.returncode == 0, planned.stdout
    assert "to create" not in planned.stdout
    status = vicinal("status", trial.name)
    assert status.returncode == 0, status.stdout
    assert status.stdout.count(runtime) == NODES
    for number in range(NODES):
        node = f"node{number}"
        done = vicinal("exec", "--cluster", trial.name, node, "cat", "/proc/sys/kernel/hostname")
        assert done.stdout.split() == [node]
    done = vicinal("ssh", "-c", trial.file, "node1", "exit 7")
    assert done.returncode == 7
    for mpi in MPIS:
        program = mpi_program(Mpi(mpi), "verify")
        options = ["run", "-c", trial.name, "-n", NODES, "--paths"]
        done = vicinal(*options, program, "--max-size", 65536)
        assert done.returncode == 0, done.stderr
        assert "region" in done.stderr
        assert "network" not in done.stderr.replace("verify", "")
    run = ("run", "-c", trial.name, "-n")
    assert "raise region.members in the cluster's file" in error_line(vicinal(*run, 99, program))
    in_heap = vicinal(*run, 2, "--heap", "region", program)
    assert in_heap.returncode == 0, in_heap.stderr
    stopped = vicinal("stop", trial.name)
    assert stopped.returncode == 0, stopped.stderr
    assert set(nodes_of(vicinal, trial).values()) == {"stopped"}
    assert vicinal("status", trial.name).returncode == 1
    assert "node0 does not run" in error_line(vicinal("exec", "-c", trial.name, "node0", "true"))
    assert error_line(vicinal(*run, NODES, program)).endswith(
        f"the cluster {trial.name} is stopped: start it with `vicinal start {trial.name}`"
    )
    planned = vicinal("plan", trial.file)
    assert (planned.returncode, planned.stdout.count("it is stopped")) == (2, NODES)
    assert vicinal("start", trial.name).returncode == 0
    assert set(nodes_of(vicinal, trial).values()) == {"running"}
    ContainerCluster.open(trial.name).stop_node("node1")
    refused = error_line(vicinal(*run, NODES, program))
    assert f"node1 of the cluster {trial.name} does not run: check" in refused
    assert vicinal("down", trial.name).returncode == 0
    assert trial.left() == []


def test_only_what_changed_is_done(vicinal: Vicinal, trial: Trial) -> None:
    assert vicinal("up", "--quiet", trial.file).returncode == 0
    before = vicinal("exec", "-c", trial.name, "node0", "readlink", "/proc/self/ns/pid").stdout
    trial.write(nodes=2)
    up = vicinal("up", trial.file)
    assert up.returncode == 0, up.stderr
    assert "removing node/node2 (the file no longer has it)" in up.stderr
    assert sorted(nodes_of(vicinal, trial)) == ["node0", "node1"]
    trial.write(nodes=4)
    assert vicinal("up", trial.file).returncode == 0
    assert sorted(nodes_of(vicinal, trial)) == ["node0", "node1", "node2", "node3"]
    after = vicinal("exec", "-c", trial.name, "node0", "readlink", "/proc/self/ns/pid").stdout
    assert after == before
    # If the region changes, every node that maps the region is made anew.
    trial.file.write_text(trial.file.read_text().replace("members: 24", "members: 25"))
    planned = vicinal("plan", trial.file)
    assert "- region/main  (the file changes it)\n    members: 24 -> 25\n" in planned.stdout
    assert planned.stdout.count("region/main is recreated") == 2 * 4


def test_one_that_died_is_made_anew(vicinal: Vicinal, trial: Trial) -> None:
    assert vicinal("up", trial.file).returncode == 0
    trial.region.unlink()
    status = vicinal("status", trial.name)
    assert (status.returncode, "region/main: absent" in status.stdout) == (1, True)
    assert vicinal("up", trial.file).returncode == 0
    assert trial.region.exists()
    assert vicinal("status", trial.name).returncode == 0


def test_what_is_of_others_is_not_touched(vicinal: Vicinal, trial: Trial) -> None:
    with create(trial.region, label="another"):
        assert "region/main exists already" in error_line(vicinal("up", trial.file))
        assert trial.region.exists()
        assert trial.left() == [str(trial.region)]


def test_a_failure_leaves_nothing(vicinal: Vicinal, trial: Trial) -> None:
    text = trial.file.read_text().replace("count: 3", "count: 1")
    trial.file.write_text(text.replace("members: 24", "members: 512, section: 512G"))
    up = vicinal("up", "--quiet", trial.file)
    assert up.returncode == 1
    assert trial.left() == []


@pytest.mark.parametrize("command", ["plan", "up"])
def test_a_file_that_cannot_be_made_leaves_nodes_running(
    vicinal: Vicinal, trial: Trial, command: str
) -> None:
    """The command reports everything that this host lacks before it removes a node."""
    trial.write(nodes=1)
    assert vicinal("up", "--quiet", trial.file).returncode == 0
    before = vicinal("exec", "-c", trial.name, "node", "readlink", "/proc/self/ns/pid").stdout
    text = trial.file.read_text().replace("members: 24", "members: 512, section: 1G")
    trial.file.write_text(text.replace("mounts: [", "mounts: [/missing/one, /missing/two, "))
    done = vicinal(command, trial.file)
    assert (done.returncode, done.stdout) == (1, "")
    room, one, two = without_waiting(done.stderr)
    assert "the region takes 512.0 GiB: reduce region.members" in room
    assert "/missing/one cannot be mounted in a node (no such file or directory)" in one
    assert "/missing/two cannot be mounted in a node" in two
    assert vicinal("status", trial.name).returncode == 0
    after = vicinal("exec", "-c", trial.name, "node", "readlink", "/proc/self/ns/pid").stdout
    assert after == before


@pytest.mark.parametrize("command", ["plan", "up"])
def test_more_nodes_than_the_region_has_members_are_refused_first(
    vicinal: Vicinal, trial: Trial, command: str
) -> None:
    trial.write(nodes=25)
    line = error_line(vicinal(command, trial.file))
    assert "the region has 24 members, and the 25 nodes need at least one" in line
    assert "set region.members to 25 or more" in line
    assert trial.left() == []


def start_up(trial: Trial) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "vicinal", "up", str(trial.file)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


ATTEMPTS = 5
"""On a busy machine, everything may already be made when the signal arrives."""


UNTIL = [
    pytest.param("containers/main", marks=pytest.mark.long),
    "node/node0",
    pytest.param("node/node2", marks=pytest.mark.long),
]


@pytest.mark.parametrize("until", UNTIL)
def test_an_up_that_is_interrupted(vicinal: Vicinal, trial: Trial, until: str) -> None:
    for _ in range(ATTEMPTS):
        status, rest = end_up(trial, until, signal.SIGINT)
        if status != 0:
            break
        vicinal("down", trial.name)
    assert status == 130, rest
    assert "rolled back" in rest
    assert trial.left() == []


@pytest.mark.parametrize("until", UNTIL)
def test_an_up_that_is_killed(vicinal: Vicinal, trial: Trial, until: str) -> None:
    for _ in range(ATTEMPTS):
        status, rest = end_up(trial, until, signal.SIGKILL)
        if status != 0 and vicinal("status", trial.name).returncode == 1:
            break
        vicinal("down", trial.name)
    assert status == -signal.SIGKILL, rest
    assert vicinal("status", trial.name).returncode == 1
    up = vicinal("up", trial.file)
    assert up.returncode == 0, up.stderr
    assert "interrupted" in up.stderr
    assert vicinal("status", trial.name).returncode == 0


def end_up(trial: Trial, until: str, number: signal.Signals) -> tuple[int, str]:
    """Send a signal to an `up` that has just begun a step. Returns exit status and output."""
    with start_up(trial) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if f"creating {until}" in line:
                break
        time.sleep(0.02)
        command.send_signal(number)
        rest = command.stderr.read()
        return command.wait(GUARD_SECONDS), rest


def test_a_cluster_without_nodes_is_not_whole(vicinal: Vicinal, trial: Trial) -> None:
    """Simulate an `up` that could not make the nodes: the region and the head process exist."""
    trial.write(nodes=1)
    text = trial.file.read_text()
    trial.file.write_text(f"{text}first_boot: ['exit 1']\n")
    assert vicinal("up", "--quiet", trial.file).returncode == 1
    trial.file.write_text(text)
    assert vicinal("up", "--quiet", trial.file).returncode == 0
    trial.file.write_text(f"{text}first_boot: ['exit 1']\n")
    assert vicinal("up", "--quiet", trial.file).returncode == 1
    status = vicinal("status", trial.name)
    assert (status.returncode, "the cluster has no nodes: create" in status.stdout) == (1, True)


def test_without_a_cluster(vicinal: Vicinal, trial: Trial) -> None:
    assert "could not be read" in error_line(vicinal("up", trial.directory / "none.yaml"))
    assert "there is no cluster" in error_line(vicinal("status", trial.name))
    assert "there is no cluster" in error_line(vicinal("exec", "-c", trial.name, "node0", "true"))
    trial.file.unlink()
    assert "No cluster is up." in vicinal("status").stdout
    assert "the cluster is not clear" in error_line(vicinal("down"))


def test_as_an_ordinary_user() -> None:
    *become, python = unprivileged_python()
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home)
        trial = Trial(directory, NOBODY if os.geteuid() == 0 else os.geteuid())
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)

        def command(*arguments: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*become, python, "-m", "vicinal", *map(str, arguments)],
                env=os.environ
                | {"PYTHONPATH": package_path(), "HOME": home, "XDG_STATE_HOME": home},
                cwd=home,
                capture_output=True,
                text=True,
                timeout=GUARD_SECONDS,
                check=False,
            )

        try:
            up = command("up", trial.file)
            assert up.returncode == 0, up.stderr
            program = mpi_program(Mpi("mpich"), "verify")
            done = command("run", "-c", trial.name, "-n", NODES, program, "--max-size", 4096)
            assert done.returncode == 0, done.stderr
        finally:
            down = command("down", trial.name)
        assert down.returncode == 0, down.stderr
        assert trial.left() == []
