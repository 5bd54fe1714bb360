"""Root's clusters where no libvirt runs: they share one that Vicinal starts and ends.

tests/python/vm/test_own_libvirt.py tests the daemon without VMs.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from guest_support import GUARD_SECONDS

import vicinal
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.own_daemon.mounts import MOUNTS, remove_mount_points
from vicinal.host.libvirt_daemons import OWN_DAEMON, system_answers
from vicinal.host.system import Host

CHECKOUT = Path(vicinal.__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="others have a session of their own"),
    pytest.mark.skipif(Host().program(OWN_DAEMON) is None, reason="libvirtd is not installed"),
    pytest.mark.skipif(system_answers(Host()), reason="the system has a libvirt"),
]


class Trial:
    """A user without clusters, and the clusters that the test creates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "LIBVIRT_DEFAULT_URI"},
            "PYTHONPATH": str(CHECKOUT / "src"),
            "XDG_STATE_HOME": str(directory / "state"),
        }
        self.daemon = Daemon(directory / "state/vicinal/libvirt")
        self.mark = f"o{os.getpid()}"
        """A part of the names of everything that is created."""

    def write(self, letter: str, text: str) -> str:
        """Write a cluster file; returns its path."""
        file = self.directory / f"{letter}.yaml"
        file.write_text(text.replace("NAME", self.name(letter)))
        return str(file)

    def name(self, letter: str) -> str:
        return f"{self.mark}{letter}"

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command as the leader of a process group, as a shell does."""
        return subprocess.Popen(
            [sys.executable, "-m", "vicinal", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        with self.begin(*arguments) as command:
            said, errors = command.communicate(timeout=GUARD_SECONDS)
        assert command.returncode == status, f"{arguments}: {said}\n{errors}"
        print(errors)
        return said, errors

    def kill_daemon(self) -> None:
        process = self.daemon.process
        assert process is not None
        os.kill(process, signal.SIGKILL)
        while self.daemon.process is not None or self.daemon.answers():
            time.sleep(0.01)

    def vms(self) -> dict[str, int]:
        """The process of each running VM, by its domain."""
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            for word in process.info["cmdline"] or []:
                name = word.removeprefix("guest=").partition(",")[0]
                if word.startswith("guest=") and self.mark in name:
                    found[name] = process.pid
        return found

    def left(self) -> list[str]:
        """Everything that exists of the created clusters."""
        found = [str(path) for path in Path("/dev/shm").glob(f"*{self.mark}*")]
        found += [str(path) for path in (self.directory / "state").glob("vicinal/*/*")]
        found += [str(path) for path in (self.directory / "state").glob("vicinal/libvirt")]
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            if self.mark in words or str(self.directory) in words:
                found.append(words)
        return found


@pytest.fixture
def trial() -> Iterator[Trial]:
    there = {directory for directory in MOUNTS.values() if directory.exists()}
    build_image(print)  # otherwise the first `up` of all would fetch packages for it
    # Not pytest's own directory, because sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        found = Trial(Path(name))
        yield found
        for process in found.vms().values():
            os.kill(process, signal.SIGKILL)
        found.daemon.end()
    left = {directory for directory in MOUNTS.values() if directory.exists()} - there
    assert not left or not remove_mount_points(), left  # a daemon of another test run has them


def test_clusters_share_a_libvirt_that_ends_with_the_last(trial: Trial) -> None:
    example = (CHECKOUT / "examples/vms.yaml").read_text()
    assert "name: vms" in example
    first = trial.write("a", example.replace("name: vms", "name: NAME"))
    second = trial.write("b", "name: NAME\nnodes: [{name: vm, backend: vm, memory: 640M}]\n")
    assert not trial.daemon.answers()

    _interrupted(trial, first)

    _, said = trial.call("up", first)
    assert "creating libvirt/main" in said
    assert f"libvirt: Vicinal's own, until `vicinal down`: {trial.daemon.uri}" in said
    process = trial.daemon.process
    assert process is not None
    assert trial.call("exec", "--cluster", trial.name("a"), "vm1", "hostname")[0] == "vm1\n"
    trial.call("up", second)
    assert trial.daemon.process == process

    # The daemon is killed, and its VMs run on.
    running = trial.vms()
    assert len(running) == 3
    trial.kill_daemon()
    assert trial.call("exec", "--cluster", trial.name("a"), "vm0", "hostname")[0] == "vm0\n"
    assert trial.daemon.process not in (None, process)
    assert trial.vms() == running
    status = json.loads(trial.call("status", "--json", trial.name("a"))[0])
    assert status["whole"] is True
    assert status["libvirt"] == trial.daemon.uri
    _, said = trial.call("up", first)
    assert said.endswith(": 6 unchanged\n")

    trial.call("down", trial.name("a"))
    assert list(trial.vms()) == [f"vicinal-0-{trial.name('b')}-vm"]
    assert trial.daemon.answers()

    # The daemon's state is lost, and no libvirt knows the running VM.
    trial.kill_daemon()
    shutil.rmtree(trial.daemon.directory)
    trial.call("down", trial.name("b"))
    assert trial.left() == [], trial.left()


def _interrupted(trial: Trial, file: str) -> None:
    """Ctrl-C reaches the whole group while VMs boot: everything is undone in order."""
    with trial.begin("up", file) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if "creating guests/main" in line:
                assert trial.daemon.answers()
                os.killpg(command.pid, signal.SIGINT)
                break
        errors = command.communicate(timeout=GUARD_SECONDS)[1]
    assert command.returncode == 130, errors
    # The daemon outlived the command long enough to end the VMs.
    lines = errors.splitlines()
    undone = [line for line in lines if "(rolled back)" in line]
    assert "libvirt/main" in undone[-2], errors
    assert trial.left() == [], trial.left()
