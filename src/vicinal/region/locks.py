"""Asks the kernel which bytes of a region's file are locked.

A member on this kernel holds an open file description lock on the byte whose number is the member's
slot. The kernel drops the lock when the last process with the description ends, for whatever
reason. The kernel answers for processes in all containers.
"""

import fcntl
import os
import struct

# struct flock of a 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


def is_locked(fd: int, first: int, count: int = 1) -> bool:
    """Whether another open file description holds a lock in a range of bytes.

    The descriptor may be read-only. Raises OSError if the filesystem has no locks.
    """
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, question)
    kind: int = _FLOCK.unpack(answer)[0]
    return kind != fcntl.F_UNLCK
