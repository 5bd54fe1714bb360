"""The system calls for namespaces that Python 3.11 does not wrap."""

import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_PR_SET_PDEATHSIG = 1

# System calls of this age have the same number on all architectures.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_OPEN_TREE_CLONE = 1
_AT_RECURSIVE = 0x8000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD = -100

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """Move the caller into new namespaces (CLONE_NEW*). Raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def enter_namespaces(flags: int) -> bool:
    """Like unshare(); without the needed rights, as root of a new user namespace.

    Returns whether a user namespace was created. Raises OSError if neither way is permitted.
    """
    try:
        unshare(flags)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        unshare(CLONE_NEWUSER | flags)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        return True
    return False


def enter_mounts(process: int) -> None:
    """Move the caller, which must have one thread, into the mount namespace of a process. Raises
    OSError."""
    _enter(f"/proc/{process}/ns/mnt", CLONE_NEWNS)


def leave_chroot() -> bool:
    """Make the root of the caller's mount namespace the caller's root. Return whether it was not:
    then the caller was in a chroot."""
    before = Path("/").stat()
    _enter("/proc/self/ns/mnt", CLONE_NEWNS)
    after = Path("/").stat()
    return (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino)


def enter_user(process: int) -> None:
    """Move the caller into the user namespace of a process, which must differ from its own. Raises
    OSError."""
    _enter(f"/proc/{process}/ns/user", CLONE_NEWUSER)


def _enter(file: str, kind: int) -> None:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), file)
    os.close(descriptor)


def mount(
    source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None
) -> None:
    """Call mount(2) in the caller's mount namespace. Raises OSError with the target's name."""
    _check(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            options.encode() if options else None,
        ),
        target,
    )


def copy_mounts(path: str) -> int:
    """Return a descriptor of a copy of the mounts at and below a directory. Raises OSError.

    Later mounts over the directory do not change the copy.
    """
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    descriptor: int = _libc.syscall(
        ctypes.c_long(_SYS_OPEN_TREE),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(flags),
    )
    _check(min(descriptor, 0), path)
    return descriptor


def attach_mounts(descriptor: int, target: str) -> None:
    """Mount the copy from copy_mounts() on a directory, and close the descriptor. Raises
    OSError."""
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOVE_MOUNT),
        ctypes.c_int(descriptor),
        b"",
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
    )
    _check(min(result, 0), target)
    os.close(descriptor)


def die_with_parent() -> None:
    """Ask the kernel to kill the caller when the thread that started the caller ends. Raises
    OSError."""
    _check(
        _libc.prctl(
            ctypes.c_int(_PR_SET_PDEATHSIG),
            ctypes.c_ulong(signal.SIGKILL),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
            ctypes.c_ulong(0),
        ),
        "prctl",
    )
