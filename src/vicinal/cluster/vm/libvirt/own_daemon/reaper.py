"""The daemon's parent process, which reaps QEMUs.

    python -m vicinal.cluster.vm.libvirt.own_daemon.reaper DIRECTORY LIBVIRTD ALIVE

libvirt waits until a QEMU that it ended has disappeared, and QEMU detaches from its parent. So
another process must reap it, and the first process of a container often reaps nothing. This process
reaps QEMUs, and ends when the daemon and all processes that it started have ended.

ALIVE is a descriptor that stays open while the daemon lives, for the command that waits for it. The
daemon locks the file DIRECTORY/claim, by which other commands find it: see base/daemon.py.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from vicinal.base.daemon import claim
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.own_daemon.mounts import (
    MOUNTS,
    hold_mount_points,
    remove_mount_points,
)

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER."""

_ENTER = """set -eu
directory=$1
shift
for name in passwd group; do mount --bind "$directory/$name" "/etc/$name"; done
while [ "$1" != -- ]; do
    mount --bind "$directory/$1" "$2"
    shift 2
done
shift
exec "$@"
"""


def arguments(directory: Path) -> list[str]:
    """The daemon's arguments."""
    return ["--config", str(directory / "libvirtd.conf"), "--pid-file", str(directory / "pid")]


def command(directory: Path, daemon: Path) -> list[str]:
    """The command line that becomes the daemon, in a mount namespace of its own.

    The host's later mounts appear in this namespace; mounts of the namespace stay private.
    """
    mounts = [word for name, path in MOUNTS.items() for word in (name, str(path))]
    script = ["sh", "-c", _ENTER, "sh", str(directory), *mounts, "--"]
    line = [str(daemon), *arguments(directory)]
    return ["unshare", "--mount", "--propagation", "slave", *script, *line]


def main() -> None:
    """Start the daemon, and reap processes until none is left."""
    directory, daemon, alive = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(alive, False)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with suppress(PermissionError):
        # The daemon also serves other commands, and the command that starts it may be under `nice`.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    try:
        held = hold_mount_points()
    except VicinalError as error:
        sys.exit(str(error))
    process = os.fork()
    if process == 0:
        _become(directory, command(directory, daemon), held)
    for descriptor in held:
        os.close(descriptor)  # the daemon inherited it
    with suppress(ChildProcessError):
        while True:
            ended, _ = os.wait()
            if ended == process:
                os.close(alive)
    # Also if the daemon ended at once, because it is no longer wanted.
    remove_mount_points()


def _become(directory: Path, line: list[str], held: list[int]) -> NoReturn:
    """Become the daemon, which keeps the inherited descriptors open until it ends."""
    try:
        file = directory / "claim"
        lock = os.open(file, os.O_RDWR)
        if not claim(lock, file):
            sys.exit("another daemon has claimed this directory, or it was removed")
        for descriptor in (lock, *held):
            os.set_inheritable(descriptor, True)
        os.execvp(line[0], line)
    except OSError as error:
        sys.exit(f"{line[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
