"""A checkout that other users can reach, wherever it was cloned.

Some tests act as another user, who must reach the checkout and the Python interpreter. In a home
directory that only its owner may enter, as Debian makes them and as /root is, that user would
reach neither.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from command_support import CHECKOUT

CLONE_NEWNS = 0x20000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def open_to_other_users() -> None:
    """Let other users pass through the directories above the checkout and the interpreter.

    Only tests of root act as another user, so this does nothing for an ordinary user. It changes
    no directory: this process, and all that it starts later, get a mount namespace in which a
    tmpfs with the same entries covers each closed directory. Other users may enter that tmpfs and
    list it, since a container of theirs shows only such directories of the host. Each entry keeps
    its own mode. Where root may not make a mount namespace, all stays as it is.
    """
    needed = (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve())
    closed = closed_above(needed)
    if os.geteuid() != 0 or not closed or _libc.unshare(CLONE_NEWNS) != 0:
        return
    current = Path.cwd()
    _mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)
    for directory in closed:
        _cover(directory)
    os.chdir(current)  # this process is still in the directory under the tmpfs


def closed_above(paths: Iterable[Path]) -> list[Path]:
    """The directories above the paths that other users may not enter and list, outer ones first."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    parents = {parent for path in paths for parent in path.resolve().parents}
    return sorted(parent for parent in parents if parent.stat().st_mode & wanted != wanted)


def _cover(directory: Path) -> None:
    """Mount a tmpfs over a directory, and bind each entry of the directory into the tmpfs."""
    below = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        found = Path(f"/proc/self/fd/{below}").stat()
        entries = list(Path(f"/proc/self/fd/{below}").iterdir())
        options = f"mode=0755,uid={found.st_uid},gid={found.st_gid}"
        _mount("vicinal-tests", directory, kind="tmpfs", options=options)
        for entry in entries:
            with suppress(FileNotFoundError):  # another process may remove an entry meanwhile
                _bring(entry, directory / entry.name)
    finally:
        os.close(below)


def _bring(entry: Path, target: Path) -> None:
    if entry.is_symlink():
        target.symlink_to(entry.readlink())
        return
    if entry.is_dir():
        target.mkdir()
    else:
        target.touch()
    _mount(str(entry), target, flags=MS_BIND | MS_REC)


def _mount(source: str, target: Path, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode())
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))
