"""A cluster whose only node is this host itself."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import Vicinal, error_line
from launch_support import GUARD_SECONDS, MPIS

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host.node import HostNode
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.state import journal_of, sole_command
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi


class Trial:
    """A cluster of this host, with its own name and its own state directory."""

    def __init__(self, directory: Path) -> None:
        self.name = f"t{secrets.token_hex(5)}"
        self.file = directory / "cluster.yaml"
        self.write()

    def write(self, more: str = "") -> None:
        # The last processor shows whether the node is pinned, because no default chooses it.
        last = max(os.sched_getaffinity(0))
        self.file.write_text(
            f"name: {self.name}\n"
            f'nodes: [{{name: host, backend: host, pin: ["{last}"]}}]\n'
            f"placement: {{policy: explicit}}\n{more}"
        )


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vicinal: Vicinal) -> Iterator[Trial]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    trial = Trial(tmp_path)
    yield trial
    done = vicinal("down", trial.name)
    assert done.returncode == 0, done
    assert list(Path("/dev/shm").glob(f"*{trial.name}*")) == []


def test_from_nothing_to_a_job_and_back(vicinal: Vicinal, trial: Trial) -> None:
    assert vicinal("plan", trial.file).stdout.splitlines()[-1] == "2 to create"
    up = vicinal("up", trial.file)
    assert up.returncode == 0, up.stderr
    assert vicinal("plan", trial.file).returncode == 0
    status = vicinal("status", trial.name)
    assert (status.returncode, "this host" in status.stdout) == (0, True)
    shown = vicinal(
        "exec", "-c", trial.name, "host", "grep", "Cpus_allowed_list", "/proc/self/status"
    )
    assert shown.stdout.split() == ["Cpus_allowed_list:", str(max(os.sched_getaffinity(0)))]
    assert vicinal("ssh", "-c", trial.name, "host", "exit 7").returncode == 7
    for mpi in MPIS:
        program = mpi_program(Mpi(mpi), "verify")
        done = vicinal("run", "-c", trial.name, "-n", 2, "--paths", program, "--max-size", 4096)
        assert done.returncode == 0, done.stderr
        assert "region" in done.stderr
        assert "could not be found" not in done.stderr
    command = HostNode(trial.name, "host").exec_command("host", ["sleep", "600"])
    with subprocess.Popen(command) as running:
        assert vicinal("stop", trial.name).returncode == 0
        assert running.wait(GUARD_SECONDS) == -9
    assert "host does not run" in error_line(vicinal("exec", "-c", trial.name, "host", "true"))
    refused = error_line(vicinal("run", "-c", trial.name, "-n", 2, program))
    assert f"is stopped: start it with `vicinal start {trial.name}`" in refused
    assert vicinal("status", trial.name).returncode == 1
    assert vicinal("start", trial.name).returncode == 0
    assert vicinal("status", trial.name).returncode == 0


def test_the_table_of_paths_is_of_one_job(vicinal: Vicinal, trial: Trial) -> None:
    """The cluster's region also records earlier jobs with other ranks, and jobs that still run."""
    assert vicinal("up", trial.file).returncode == 0
    program = mpi_program(Mpi.MPICH, "verify")
    run = ("run", "-c", trial.name, "--paths", "-n")
    assert vicinal(*run, 3, program, "--max-size", 64).returncode == 0
    done = vicinal(*run, 2, program, "--max-size", 64)
    assert done.returncode == 0, done.stderr
    rows = [line.split("│")[1:4] for line in done.stderr.splitlines() if "│" in line]
    # Collectives are with communicators.
    pairs = {(int(a), int(b)) for a, _, b in rows if b.strip().isdigit()}
    assert {(0, 1), (1, 0)} <= pairs <= {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert "pairs of 3 ranks" not in done.stderr


def test_without_a_region(vicinal: Vicinal, trial: Trial) -> None:
    trial.write("region: none\n")
    assert vicinal("plan", trial.file).stdout.splitlines()[-1] == "1 to create"
    assert vicinal("up", trial.file).returncode == 0
    program = mpi_program(Mpi.MPICH, "verify")
    options = ("run", "-c", trial.name, "-n", 2)
    assert "has no region: use --path network or shared-memory" in error_line(
        vicinal(*options, program)
    )
    # libfabric's tcp provider hangs if many unexpected messages arrive.
    for path, skipped in (("network", ["--skip", "unexpected"]), ("shared-memory", [])):
        done = vicinal(*options, "--path", path, program, "--max-size", 4096, *skipped)
        assert done.returncode == 0, done.stderr


def test_what_is_of_others_is_not_touched(vicinal: Vicinal, trial: Trial) -> None:
    node = HostNode(trial.name, "host")
    node.create()
    assert "host-node/host exists already" in error_line(vicinal("up", trial.file))
    assert node.is_there
    with pytest.raises(VicinalError, match="there is no node 'other'"):
        node.exec_command("other", ["true"])
    node.remove()
    assert not node.is_there


def test_what_another_command_is_at_is_not_broken(vicinal: Vicinal, trial: Trial) -> None:
    """Steps of a running `down` are not broken. They are broken only if the `down` is killed."""
    assert vicinal("up", trial.file).returncode == 0
    journal = journal_of(trial.name)
    node = recorded_resources(journal.entries())["host-node/host"]
    with sole_command(trial.name):
        journal.write(node, Event.REMOVING)
        status = vicinal("status", trial.name)
        state = json.loads(vicinal("status", "--json", trial.name).stdout)
    assert status.returncode == 1
    assert "host-node/host: changing: another command works on it" in status.stdout
    assert "another command works on the cluster now" in status.stdout
    assert "broken" not in status.stdout
    assert (state["busy"], state["whole"]) == (True, False)
    left = vicinal("status", trial.name).stdout
    assert "host-node/host: broken: a command was interrupted while it" in left
    assert "another command" not in left
