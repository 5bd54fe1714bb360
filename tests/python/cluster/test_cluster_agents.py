"""Clusters over several hosts that ssh reaches: plans, agents and journals, with host nodes.

Tests of virtual machines on several hosts are in tests/guests/hosts/test_cluster_hosts.py.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from command_support import without_waiting
from host_support import Hosts
from launch_support import package_path
from process_support import name_of, named, words_of

from vicinal.cluster.hosts.record import SaveRecord
from vicinal.cluster.plan.journal import Event, Journal

NAME = "hosts-test"
STATE = "state"
LEFT_SECONDS = 120.0


def written(*hosts: str, region: str = "members: 4") -> str:
    """A cluster file in which each of these hosts is a node: n0, n1."""
    nodes = [f"{{name: n{n}, backend: host, host: {host}}}" for n, host in enumerate(hosts)]
    named = ", ".join(f"{{name: {host}}}" for host in hosts)
    return f"name: {NAME}\nhosts: [{named}]\nnodes: [{', '.join(nodes)}]\nregion: {{{region}}}\n"


class Trial:
    """Two hosts, and the command's host, which has a state directory of its own."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.file = hosts.directory / "cluster.yaml"
        self.state = hosts.directory / STATE
        self.file.write_text(written("node0", "node1"))

    def call(self, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.hosts.vicinal(*arguments, XDG_STATE_HOME=str(self.state))
        assert done.returncode == status, f"{arguments}: {done}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.hosts.command(*arguments),
            env=self.hosts.environment(XDG_STATE_HOME=str(self.state)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def refused(self, *arguments: object) -> str:
        """The error lines of a command that fails. Progress lines may only come before them."""
        lines = self.call(*arguments, status=1).stderr.splitlines()
        errors = [line for line in lines if "error:" in line]
        assert errors
        assert lines[-len(errors) :] == errors, lines
        return "\n".join(errors)

    def journals(self) -> list[str]:
        """The clusters with a journal on any host. The hosts share a home directory."""
        here = self.state.glob("vicinal/clusters/*/journal")
        there = (self.hosts.directory / ".local").glob("state/vicinal/clusters/*/journal")
        return sorted(path.parent.name for path in [*here, *there])

    def shared(self, host: str) -> list[str]:
        return sorted(self.hosts.cluster.run_in(host, ["ls", "/dev/shm"]).split())

    def nothing_left(self) -> None:
        deadline = time.monotonic() + LEFT_SECONDS
        while left := [*self.hosts.leftovers().items(), *self.journals()]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(2, tmp_path_factory.mktemp("cluster-hosts")) as hosts:
        yield hosts


@pytest.fixture
def trial(opened: Hosts) -> Iterator[Trial]:
    trial = Trial(opened)
    yield trial
    trial.hosts.vicinal("down", NAME, XDG_STATE_HOME=str(trial.state))
    trial.nothing_left()


def test_from_nothing_to_nothing(trial: Trial) -> None:
    planned = trial.call("plan", trial.file, status=2).stdout
    assert planned.splitlines()[-1] == "4 to create"
    assert "+ node0: host-node/n0" in planned
    trial.nothing_left()
    up = trial.call("up", trial.file).stderr
    assert "creating node1: host-node/n1" in up
    assert f"{NAME} is up: 4 created" in up
    assert trial.journals() == [NAME, f"{NAME}.node0", f"{NAME}.node1"]
    assert trial.shared("node0") == [f"vicinal-0-{NAME}", f"vicinal-0-{NAME}.host-node"]
    assert "4 unchanged" in trial.call("plan", trial.file).stdout
    shown = trial.call("status", NAME).stdout
    assert "node0" in shown
    assert f"node1: region: /dev/shm/vicinal-0-{NAME}" in shown
    state = json.loads(trial.call("status", "--json", NAME).stdout)
    assert state["whole"] is True
    assert [(each["host"], each["name"]) for each in state["nodes"]] == [
        ("node0", "n0"),
        ("node1", "n1"),
    ]
    done = trial.call("exec", "n1", "sh", "-c", "uname -n; exit 7", status=7)
    assert done.stdout.strip() == "node1"
    assert trial.call("ssh", "n0", "uname -n").stdout.strip() == "node0"
    trial.call("stop", NAME)
    assert "n0 does not run" in trial.refused("exec", "n0", "true")
    trial.call("status", NAME, status=1)
    assert "> node0: host-node/n0" in trial.call("plan", trial.file, status=2).stdout
    trial.call("start", NAME)
    trial.call("exec", "n0", "true")
    assert "cannot be saved: it is not a virtual machi" in trial.refused("save", NAME)
    assert "save the whole cluster on the host" in trial.refused("save", f"{NAME}.node0")
    assert f"{NAME} has no saved virtual machines" in trial.refused("restore", NAME)
    assert "is a host node" in trial.refused("run", "--cluster", NAME, "-n", 2, "true")
    trial.call("down", NAME)
    trial.nothing_left()
    assert f"{NAME} does not exist" in trial.call("down", NAME).stderr


def test_only_what_changed_is_done(trial: Trial) -> None:
    trial.call("up", trial.file)
    trial.file.write_text(written("node0", "node1", region="members: 8"))
    assert "region/main (the file changes it: members: " in trial.call("up", trial.file).stderr
    # If the file drops a host, that host's part is removed.
    trial.file.write_text(written("node0"))
    assert "- node1: its part of the cluster" in trial.call("plan", trial.file, status=2).stdout
    trial.call("up", trial.file)
    assert trial.shared("node1") == []
    assert trial.journals() == [NAME, f"{NAME}.node0"]
    # A file without hosts describes a different cluster of the same name.
    trial.file.write_text(f"name: {NAME}\nnodes: [{{name: n, backend: host}}]\n")
    assert "is on the hosts node0" in trial.refused("up", trial.file)


def test_a_save_that_was_interrupted(trial: Trial) -> None:
    """The command reads it in the journal. tests/guests/hosts interrupts a real save."""
    trial.call("up", trial.file)
    journal = Journal(trial.state / "vicinal/clusters" / NAME / "journal")
    journal.write(SaveRecord(), Event.BEGUN)
    planned = trial.call("plan", trial.file, status=2).stdout
    assert "> node1: save/main  (a command was interrupted while it saved" in planned
    shown = trial.call("status", NAME, status=1).stdout
    assert "save/main: broken: a command was interrupted while it" in shown
    for command in (("restore", NAME), ("up", trial.file)):
        trial.call(*command)
        trial.call("plan", trial.file)
        assert "save/main" not in journal.entries()
        journal.write(SaveRecord(), Event.BEGUN)
    journal.write(SaveRecord(), Event.MADE)
    trial.call("down", NAME)
    trial.nothing_left()


def test_what_one_host_cannot_have_no_host_gets(trial: Trial) -> None:
    theirs = trial.hosts.cluster.run_in
    theirs("node1", ["touch", f"/dev/shm/vicinal-0-{NAME}"])
    assert "host node1: region/main exists already" in trial.refused("up", trial.file)
    assert trial.shared("node0") == []
    theirs("node1", ["rm", f"/dev/shm/vicinal-0-{NAME}"])
    # If the creation of the region fails on one host, the other host rolls back its own part.
    theirs("node1", ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "tmpfs", "/dev/shm"])
    error = trial.refused("up", trial.file)
    theirs("node1", ["umount", "/dev/shm"])
    assert error.startswith("vicinal: error: host node1: ")
    assert "may be left on" not in error
    trial.nothing_left()


@pytest.mark.parametrize("command", [pytest.param("plan", marks=pytest.mark.long), "up"])
def test_what_all_hosts_lack_is_told_before_any_takes_something_away(
    trial: Trial, command: str
) -> None:
    trial.call("up", trial.file)
    trial.file.write_text(written("node0", "node1", region="members: 512, section: 1G"))
    lines = without_waiting(trial.call(command, trial.file, status=1).stderr)
    assert [line.partition(" has ")[0] for line in lines] == [
        f"vicinal: error: host node{n}: /dev/shm (tmpfs)" for n in (0, 1)
    ]
    assert trial.call("status", NAME).returncode == 0
    trial.file.write_text(written("node0", "node1"))
    assert "4 unchanged" in trial.call("plan", trial.file).stdout


def test_a_host_that_is_not_reached(trial: Trial) -> None:
    trial.file.write_text(written("node0", "nowhere"))
    assert "host nowhere: ssh does not reach it" in trial.refused("up", trial.file)
    trial.nothing_left()
    trial.file.write_text(written("node0", "node1"))
    trial.call("up", trial.file)
    run = trial.hosts.cluster.run_in
    [sshd] = named(trial.hosts.cluster.processes("node1"), "sshd")
    sshd.kill()
    shown = trial.call("status", NAME, status=1).stdout
    assert "host/node1: broken: ssh does not reach it" in shown
    assert "running" in shown
    error = trial.refused("down", NAME)
    assert f"the part of {NAME} on node1 is not removed" in error
    assert trial.shared("node0") == []
    assert trial.shared("node1") != []
    assert trial.journals() == [NAME, f"{NAME}.node1"]
    assert "has no host 'node2'" in trial.refused("down", "--forget", "node2", NAME)
    trial.call("down", "--forget", "node1", NAME)
    assert trial.journals() == [f"{NAME}.node1"]
    run("node1", ["/usr/sbin/sshd", "-f", str(trial.hosts.directory / "sshd_config")])
    # The host can also remove its part without the command's host, because it has a journal of its
    # part.
    own = [sys.executable, "-m", "vicinal", "down", f"{NAME}.node1"]
    environment = [f"PYTHONPATH={package_path()}", f"HOME={trial.hosts.directory}"]
    run("node1", ["env", *environment, *own])


def test_a_host_without_libvirt(trial: Trial) -> None:
    trial.file.write_text(
        f"name: {NAME}\nhosts: [{{name: node0}}, {{name: node1}}]\n"
        "nodes: [{name: vm, backend: vm, count: 2}]\n"
        "hypervisor: 'qemu+unix:///system?socket=/nowhere'\n"
    )
    errors = without_waiting(trial.call("up", trial.file, status=1).stderr)
    for number, error in enumerate(errors):
        assert error.startswith(f"vicinal: error: host node{number}: libvirt at qemu+unix"), error
        assert "cannot be reached" in error
    assert len(errors) == 2
    trial.nothing_left()


def interrupted(trial: Trial) -> tuple[subprocess.Popen[Any], psutil.Process]:
    """An `up` in progress while node1's agent is stopped, and that agent's process."""
    trial.file.write_text(written("node0", "node1", region="members: 64, section: 4M"))
    up: subprocess.Popen[Any] = trial.start("up", trial.file)
    assert up.stderr is not None
    for line in up.stderr:
        if "creating node1" in line:
            break
    [agent] = [
        process
        for process in trial.hosts.cluster.processes("node1")
        if name_of(process) != "sshd"
        and words_of(process)[-1:] == ["vicinal.cluster.host_part_agent"]
    ]
    agent.suspend()
    return up, agent


def test_an_agent_that_is_killed(trial: Trial) -> None:
    up, agent = interrupted(trial)
    agent.kill()
    _, errors = up.communicate(timeout=LEFT_SECONDS)
    assert up.returncode == 1
    assert "host node1: its agent for the cluster ended" in errors
    trial.nothing_left()


def test_a_command_that_is_killed(trial: Trial) -> None:
    """The agents notice, and undo what they made. Only the command's host keeps its journal."""
    up, agent = interrupted(trial)
    trial.hosts.cluster.signal_command(up, signal.SIGKILL)
    up.communicate(timeout=LEFT_SECONDS)
    agent.resume()
    deadline = time.monotonic() + LEFT_SECONDS
    while trial.hosts.leftovers() or trial.journals() != [NAME]:
        assert time.monotonic() < deadline, (trial.hosts.leftovers(), trial.journals())
        time.sleep(0.1)
    assert "it has no part of the cluster" in trial.call("status", NAME, status=1).stdout
    trial.call("down", NAME)


def test_a_command_that_is_interrupted(trial: Trial) -> None:
    up, agent = interrupted(trial)
    trial.hosts.cluster.signal_command(up, signal.SIGINT)
    agent.resume()
    up.communicate(timeout=LEFT_SECONDS)
    assert up.returncode == 130
    trial.nothing_left()


def test_another_version_is_refused(trial: Trial) -> None:
    """The request is the request of a command of another version."""
    agent = ["-P", "-m", "vicinal.cluster.host_part_agent"]
    ask = json.dumps({"do": "hello", "version": "0.0"})
    command = f"echo '{ask}' | {sys.executable} {' '.join(agent)}"
    answer = trial.hosts.at_head("sh", "-c", command).stdout
    assert "and the command's host has 0.0" in answer
