"""Vicinal's own libvirt daemon: started once, found again, ended, with clear error messages.

The daemon is real, with its own directories. tests/guests runs VMs in it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libvirt
import psutil
import pytest
from command_support import CHECKOUT

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.own_daemon import daemon as daemon_module
from vicinal.cluster.vm.libvirt.own_daemon import reaper
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon
from vicinal.cluster.vm.libvirt.own_daemon.mounts import MOUNTS, remove_mount_points
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.host.libvirt_daemons import OWN_DAEMON
from vicinal.host.system import Host

HERE = {directory for directory in MOUNTS.values() if directory.exists()}
"""The directories of MOUNTS that the host already has."""
BOUND = 120.0  # seconds; a guard against hangs
ENVIRONMENT = os.environ | {"PYTHONPATH": str(CHECKOUT / "src")}
START = (
    "import sys; from pathlib import Path\n"
    "from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon\n"
    "print(Daemon(Path(sys.argv[1])).start(), flush=True)\n"
)
VM = (
    "<domain type='qemu'><name>{}</name><memory>65536</memory>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a system libvirt"),
    pytest.mark.skipif(Host().program(OWN_DAEMON) is None, reason="libvirtd is not installed"),
    pytest.mark.timeout(BOUND),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for facts about QEMU programs, which take seconds to find out."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def daemon(cache: Path) -> Iterator[Daemon]:
    """A daemon that does not run yet, and does not run at the end."""
    # Not pytest's own directory, because paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="vicinal-test-") as name:
        found = Daemon(Path(name) / "own", cache)
        yield found
        found.end()


def check_mount_points() -> None:
    """Check that no directory is left that the daemon added to the host for libvirt."""
    deadline = time.monotonic() + 60
    while not {directory for directory in MOUNTS.values() if directory.exists()} <= HERE:
        # A daemon of another test run may use them.
        assert time.monotonic() < deadline or not remove_mount_points()
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nothing_left_on_the_host() -> Iterator[None]:
    yield
    check_mount_points()


def starting(daemon: Daemon, code: str = START, before: tuple[str, ...] = ()) -> list[str]:
    """The command line of another process that starts the daemon."""
    return [*before, sys.executable, "-c", code, str(daemon.directory)]


def other(daemon: Daemon, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        starting(daemon, before=before),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def names(daemon: Daemon) -> list[str]:
    """The VMs that the daemon knows."""
    connection = libvirt.open(daemon.uri)
    try:
        return [domain.name() for domain in connection.listAllDomains()]
    finally:
        connection.close()


def define(daemon: Daemon, name: str) -> None:
    connection = libvirt.open(daemon.uri)
    connection.defineXML(VM.format(name))
    connection.close()


def kill(daemon: Daemon) -> None:
    process = daemon.process
    assert process is not None
    os.kill(process, signal.SIGKILL)
    while daemon.process is not None or daemon.answers():
        time.sleep(0.01)


def test_it_is_started_once_found_again_and_ended(daemon: Daemon) -> None:
    before = daemon.process  # else mypy takes daemon.process for None from here
    assert before is None
    assert not daemon.answers()
    assert other(daemon).stdout == "True\n"
    process = daemon.process
    assert process is not None
    assert not daemon.start()
    assert daemon.process == process
    assert names(daemon) == []
    assert daemon.directory.stat().st_mode & 0o777 == 0o700  # its sockets check no user
    assert not daemon.end(wanted=lambda: True)
    assert daemon.answers()
    assert daemon.end()
    assert not psutil.pid_exists(process)
    assert not daemon.directory.exists()
    assert daemon.end()  # again: nothing to do


def test_of_two_commands_at_once_one_starts_it(daemon: Daemon) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: other(daemon), range(4)))
    assert sorted(each.stdout for each in done) == ["False\n"] * 3 + ["True\n"], done
    words = ["--config", str(daemon.directory / "libvirtd.conf")]
    running = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] and process.info["cmdline"][1:3] == words
    ]
    assert running == [daemon.process]


def test_it_is_as_nice_as_any_daemon(daemon: Daemon) -> None:
    """The starting command may run under `nice`, but VMs of other clusters must not."""
    assert other(daemon, "nice", "-n", "5").stdout == "True\n"
    process = daemon.process
    assert process is not None
    assert os.getpriority(os.PRIO_PROCESS, process) == 0


def test_ctrl_c_is_not_for_it(daemon: Daemon) -> None:
    """A terminal sends the signal to all processes of its group."""
    code = START + "import time; time.sleep(600)\n"
    with subprocess.Popen(
        starting(daemon, code),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "True\n"
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(BOUND) != 0
        # A reader of the command's output sees its end, although the daemon lives.
        assert command.stdout.read() == ""
    assert daemon.answers()
    process = daemon.process
    assert process is not None
    assert os.getsid(process) not in (0, os.getsid(0), command.pid)


def test_one_that_was_killed_goes_on_with_what_it_had(daemon: Daemon) -> None:
    daemon.start()
    define(daemon, "kept")
    first = daemon.process
    kill(daemon)
    assert not daemon.answers()
    assert daemon.start()
    assert daemon.process != first
    assert names(daemon) == ["kept"]
    daemon.end()
    daemon.start()
    assert names(daemon) == []


def test_processes_of_another_boot_are_not_taken_for_its_vms(daemon: Daemon) -> None:
    """libvirt would end processes that now have these numbers."""
    daemon.start()
    define(daemon, "kept")
    kill(daemon)
    left = daemon.directory / "run" / "qemu" / "kept.pid"
    left.write_text("1\n")
    daemon_module.write_settings(daemon.directory)
    assert left.exists()
    (daemon.directory / "processes").write_text("an earlier boot")
    daemon_module.write_settings(daemon.directory)
    assert not left.exists()
    daemon.start()
    assert names(daemon) == ["kept"]


def test_two_of_them_do_not_disturb_each_other(daemon: Daemon, cache: Path) -> None:
    second = Daemon(daemon.directory.parent / "second", cache)
    try:
        daemon.start()
        second.start()
        define(daemon, "here")
        assert names(second) == []
        daemon.end()
        define(second, "there")
        assert names(second) == ["there"]
        kill(second)
        assert second.start()  # its directories on the host are there, or created again
        assert names(second) == ["there"]
    finally:
        second.end()


def fake_program(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a script into PATH as libvirtd."""
    programs = daemon.directory.parent / "programs"
    programs.mkdir()
    program = programs / OWN_DAEMON
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return program


def test_one_that_ends_is_told_with_its_last_lines(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(daemon, monkeypatch, "seq 9 >&2; exit 3")
    with pytest.raises(UnreachableError) as raised:
        daemon.start()
    assert raised.value.message.endswith("answers, ended; it wrote: 7 | 8 | 9")
    assert daemon.process is None


def test_one_that_never_answers_is_ended(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_program(daemon, monkeypatch, "echo busy >&2; exec sleep 600")
    monkeypatch.setattr(daemon_module, "_START_SECONDS", 1.0)
    with pytest.raises(UnreachableError, match="did not answer within 1 s; it wrote: busy"):
        daemon.start()
    assert daemon.process is None


def test_one_that_takes_connections_and_then_fails_is_told(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirtd listens before it reads the settings of its drivers."""
    monkeypatch.setattr(daemon_module, "_QEMU", 'user = "nobody-of-this-name"\n')
    with pytest.raises(UnreachableError, match="nobody-of-this-name"):
        daemon.start()
    assert daemon.process is None


def test_without_the_right_to_mount_the_remedy_is_named(daemon: Daemon) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    drop = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    done = other(daemon, *drop)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert "unshare failed" in error
    assert "CAP_SYS_ADMIN" in error


def test_without_the_program_or_room_for_sockets_nothing_is_begun(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = Daemon(tmp_path / ("long" * 30))
    with pytest.raises(UnreachableError, match="too long for sockets in it: set XDG_STATE_HOME"):
        long.start()
    monkeypatch.setattr(Host, "program", lambda *_: None)
    with pytest.raises(UnreachableError, match=r"to start one, is not there: .*apt-get install"):
        daemon.start()
    assert not daemon.directory.exists()


def test_a_directory_that_cannot_be_made() -> None:
    with pytest.raises(UnreachableError, match=r"cannot be used .*set XDG_STATE_HOME"):
        Daemon(Path("/proc/none/own")).start()


def test_what_leaves_the_daemon_is_reaped_by_its_parent(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU leaves the daemon too, and libvirt waits for it; a container may lack another reaper."""
    program = fake_program(daemon, monkeypatch, "(sleep 3 & echo $! >&2); exec sleep 600")
    daemon.directory.mkdir()
    daemon_module.write_settings(daemon.directory)
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", reaper.__name__, daemon.directory, program, str(theirs)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        pass_fds=(theirs,),
        text=True,
    ) as reaping:
        os.close(ours)
        os.close(theirs)
        try:
            assert reaping.stderr is not None
            left = psutil.Process(int(reaping.stderr.readline()))
            deadline = time.monotonic() + 60
            while left.ppid() != reaping.pid:  # until the shell that started it has ended
                assert time.monotonic() < deadline, left.parents()
                time.sleep(0.01)
            while left.is_running():
                assert time.monotonic() < deadline, left.status()
                time.sleep(0.01)
            assert reaping.poll() is None
        finally:
            daemon.end()
        assert reaping.wait(BOUND) == 0


def test_a_reaper_that_comes_too_late_leaves_nothing(daemon: Daemon) -> None:
    """The command that started it was interrupted, and the directory is gone."""
    ours, theirs = os.pipe()
    done = subprocess.run(
        [sys.executable, "-P", "-m", reaper.__name__, daemon.directory, "libvirtd", str(theirs)],
        env=ENVIRONMENT,
        pass_fds=(theirs,),
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )
    os.close(ours)
    os.close(theirs)
    assert "No such file" in done.stderr
    check_mount_points()


def test_one_whose_directory_was_removed_is_ended_all_the_same(daemon: Daemon) -> None:
    daemon.start()
    process = daemon.process
    assert process is not None
    shutil.rmtree(daemon.directory)
    assert daemon.end()
    assert not psutil.pid_exists(process)


def test_it_is_not_ended_from_another_process_namespace(daemon: Daemon) -> None:
    daemon.start()
    code = (
        "import sys; from pathlib import Path\n"
        "from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon\n"
        "Daemon(Path(sys.argv[1])).end()\n"
    )
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    done = subprocess.run(
        starting(daemon, code, apart),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert "is in another PID namespace" in done.stderr
    assert daemon.answers()
    with pytest.raises(VicinalError, match="could not be removed"):
        _end_where_nothing_can_be_removed(daemon)


def _end_where_nothing_can_be_removed(daemon: Daemon) -> None:
    """End the daemon while its directory is a mount point, which cannot be removed."""
    subprocess.run(["mount", "--bind", daemon.directory, daemon.directory], check=True)
    try:
        daemon.end()
    finally:
        subprocess.run(["umount", daemon.directory], check=True)
