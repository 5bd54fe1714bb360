"""A libvirt of a test's own, which knows nothing of the machine's and leaves nothing to it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vicinal

NOBODY = 65534
_START_SECONDS = 60.0

# The daemon's directories are fixed when it is compiled: here they are this mount namespace's own.
# It also wants the users that Debian's package libvirt-daemon-system makes.
_PRIVATE = """set -eu
private=$1
shift
mount -t tmpfs tmpfs "$private/state"
cd "$private/state"
mkdir etc work configuration
mount -t overlay overlay -o lowerdir=/etc,upperdir=etc,workdir=work /etc
mkdir -p /etc/libvirt
mount --bind configuration /etc/libvirt
for directory in /run /var/lib /var/cache /var/log; do mount -t tmpfs tmpfs "$directory"; done
for name in libvirt-qemu kvm; do
    grep -q "^$name:" /etc/group || echo "$name:x:64055:" >>/etc/group
done
grep -q ^libvirt-qemu: /etc/passwd ||
    echo "libvirt-qemu:x:64055:64055::/var/lib:/usr/sbin/nologin" >>/etc/passwd
cp "$private"/*.conf /etc/libvirt/
cd /
"""
# QEMU leaves its parent, and libvirt waits until nothing is left of the ones it asks for their
# abilities: so the first process must be one that waits for every child, as this shell does.
_REAP = '"$@" & wait $!'

_QEMU_CONF = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
"""


@contextmanager
def private_daemon() -> Iterator[str]:
    """A system libvirtd, as root; the URI by which it is reached. Its guests end with it."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a system libvirt; the session is tried as this user")
    daemon = shutil.which("libvirtd", path=f"{os.environ['PATH']}:/usr/sbin")
    if daemon is None:
        pytest.skip("libvirtd is not installed: install libvirt-daemon")
    with tempfile.TemporaryDirectory(prefix="vicinal-libvirt-") as name:
        private = Path(name)
        (private / "state").mkdir()
        (private / "qemu.conf").write_text(_QEMU_CONF)
        (private / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{private}"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n'
            # Else two of them on one host would take each other for themselves.
            f'host_uuid = "{uuid.uuid4()}"\n'
        )
        script = ["sh", "-c", f"{_PRIVATE}\n{_REAP}", "sh", name]
        command = [*_spaces("--mount", "--propagation", "private"), *script, daemon]
        with (private / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--config", "/etc/libvirt/libvirtd.conf"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            socket = private / "libvirt-sock"
            deadline = time.monotonic() + _START_SECONDS
            while not socket.exists():
                said = (private / "log").read_text(errors="replace")
                assert process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.1)
            yield f"qemu+unix:///system?socket={socket}"
        finally:
            process.kill()
            process.wait()


def ordinary_user(directory: Path) -> tuple[list[str], dict[str, str]]:
    """What to put before a Python program that an ordinary user runs, and its environment.

    `directory` becomes that user's, with all that libvirt's session keeps. What the program
    leaves behind, such as the session's daemon, ends with it.
    """
    environment = os.environ | {"PYTHONPATH": _package_path(), "HOME": str(directory)}
    for name in ("RUNTIME_DIR", "CONFIG_HOME", "CACHE_HOME", "DATA_HOME"):
        environment[f"XDG_{name}"] = str(directory / name.lower())
        (directory / name.lower()).mkdir(mode=0o700)
    if os.geteuid() != 0:
        return [*_spaces("--user", "--map-current-user"), *_reaped(), sys.executable], environment
    for path in (directory, *directory.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, "/usr/bin/python3"):
        question = (
            "import os, sys, libvirt, vicinal.cli; sys.exit(not os.access(sys.executable, 1))"
        )
        answer = subprocess.run(
            [*become, python, "-c", question],
            env=environment,
            cwd="/",
            capture_output=True,
            check=False,
        )
        if answer.returncode == 0:
            return [*_spaces(), *_reaped(), *become, python], environment
    pytest.skip("an ordinary user can reach no Python that runs vicinal, or not the checkout")


def _spaces(*more: str) -> list[str]:
    """Process numbers of its own: all that is in there ends with the first one."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "--", "unshare"),
        *(*more, "--pid", "--fork", "--kill-child", "--mount-proc"),
    ]


def _reaped() -> list[str]:
    return ["sh", "-c", _REAP, "sh"]


def _package_path() -> str:
    checkout = str(Path(vicinal.__file__).resolve().parents[1])
    return os.pathsep.join([checkout, *(path for path in sys.path if path)])
