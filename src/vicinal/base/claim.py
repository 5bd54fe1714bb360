"""Which process it is that serves: the kernel says so, by a lock that only that process has.

A process number in a file may be another process's by the time it is read, and a command may be
killed before it wrote one. The lock is there as long as the process, and names it.
"""

import fcntl
import os
import struct
from pathlib import Path

# struct flock of a 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def claim(descriptor: int, file: Path) -> bool:
    """Lock a file for as long as this process lives; False: another has it, or it is gone.

    `descriptor` is of that file and open for writing; no other of it may be closed afterwards.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def claimant(file: Path) -> int | None:
    """The process that has locked the file; None where there is none, or no file.

    0: one of another PID namespace, which has no number here.
    """
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, question)
    finally:
        os.close(descriptor)
    kind, _, _, _, process = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(process)
