"""A test's own libvirt, which is independent of the host's."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch_support import NOBODY, package_path, unprivileged_python

from vicinal.cluster.vm.libvirt.own_daemon import reaper
from vicinal.cluster.vm.libvirt.own_daemon.daemon import Daemon, write_settings
from vicinal.host.libvirt_daemons import OWN_DAEMON
from vicinal.host.system import Host

_START_SECONDS = 60.0

# QEMU detaches from its parent, and libvirt waits until a QEMU that it asked for its capabilities
# has disappeared. So the first process must wait for every child, as this shell does.
_REAP = '"$@" & wait $!'


@contextmanager
def private_daemon(inside: Sequence[str] = (), *, user: str = "root") -> Iterator[str]:
    """A system libvirtd, run as root; yields its URI. Its guests end with it.

    `inside` is a command line that runs another one on the host of the daemon. `user` runs QEMU
    if a domain names no user; on Debian it is "libvirt-qemu".
    """
    if os.geteuid() != 0:
        pytest.skip("only root can start a system libvirt; the session is tried as this user")
    program = Host().program(OWN_DAEMON)
    if program is None:
        pytest.skip("libvirtd is not installed: install libvirt-daemon")
    with tempfile.TemporaryDirectory(prefix="vicinal-libvirt-") as name:
        # Like Vicinal's own daemon, except that all its processes end with the first one.
        daemon = Daemon(Path(name) / "own")
        daemon.directory.mkdir(mode=0o700)
        write_settings(daemon.directory)
        settings = daemon.directory / "settings" / "qemu.conf"
        settings.write_text(settings.read_text().replace('"root"', f'"{user}"'))
        ours, theirs = os.pipe()
        reap = [sys.executable, "-P", "-m", reaper.__name__]
        arguments = [str(daemon.directory), str(program), str(theirs)]
        with (daemon.directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*inside, *_spaces(), *reap, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": package_path()},
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not daemon.answers():
                said = (daemon.directory / "log").read_text(errors="replace")
                assert not select.select([ours], [], [], 0.1)[0], said
                assert time.monotonic() < deadline, said
            yield daemon.uri
        finally:
            os.close(ours)
            process.kill()
            process.wait()
            while daemon.process is not None:
                time.sleep(0.02)
            daemon.end()


def ordinary_user(directory: Path) -> tuple[list[str], dict[str, str]]:
    """The prefix of a Python program that an unprivileged user runs, and its environment.

    `directory` becomes that user's, including the state of libvirt's session. Remaining processes
    of the program, such as the session's daemon, end with it.
    """
    environment = os.environ | {"PYTHONPATH": package_path(), "HOME": str(directory)}
    for name in ("RUNTIME_DIR", "CONFIG_HOME", "CACHE_HOME", "DATA_HOME"):
        environment[f"XDG_{name}"] = str(directory / name.lower())
        (directory / name.lower()).mkdir(mode=0o700)
    if os.geteuid() != 0:
        return [*_spaces("--user", "--map-current-user"), *_reaped(), sys.executable], environment
    for path in (directory, *directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    return [*_spaces(), *_reaped(), *unprivileged_python()], environment


def _spaces(*more: str) -> list[str]:
    """A PID namespace, whose processes end with the first one."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--", "unshare"),
        *(*more, "--pid", "--fork", "--kill-child", "--mount-proc"),
    ]


def _reaped() -> list[str]:
    return ["sh", "-c", _REAP, "sh"]
