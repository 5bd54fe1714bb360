"""The frames between a task and its program in a guest, in two streams.

guest/frames.h describes the frames and is the guest's end.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from enum import Enum

_HEAD = struct.Struct(">cI")
_MOST = 1 << 20


class Kind(Enum):
    """The kinds of frames; each value is the frame's first byte."""

    ARGUMENTS = b"A"
    VARIABLES = b"E"
    DIRECTORY = b"D"
    INPUT = b"I"
    SIGNAL = b"S"
    PMI = b"M"
    OUTPUT = b"O"
    ERRORS = b"R"
    TAKEN = b"T"
    FAILED = b"F"
    EXITED = b"X"
    KILLED = b"K"


_OF_ONE_BYTE = (Kind.SIGNAL, Kind.TAKEN, Kind.EXITED, Kind.KILLED)


class TooLongError(ValueError):
    """The arguments or variables do not fit into a frame."""


def write(stream: int, kind: Kind, content: bytes = b"") -> None:
    """Write a frame to a descriptor.

    Raises OSError if nobody reads, and TooLongError if `content` has more than 1 MiB.
    """
    if len(content) > _MOST:
        raise TooLongError(f"{len(content)} bytes")
    left = _HEAD.pack(kind.value, len(content)) + content
    while left:
        left = left[os.write(stream, left) :]


def write_start(
    stream: int, arguments: Sequence[str], variables: Mapping[str, str], directory: str
) -> None:
    """Write the frames that start the program. Raises as write()."""
    settings = [f"{name}={value}" for name, value in variables.items()]
    for kind, words in ((Kind.ARGUMENTS, arguments), (Kind.VARIABLES, settings)):
        write(stream, kind, b"".join(_bytes(word) + b"\0" for word in words))
    write(stream, Kind.DIRECTORY, _bytes(directory))


def read(stream: int) -> tuple[Kind, bytes] | None:
    """The next frame of a descriptor; None at its end, or if the bytes are not a frame.

    Reads nothing beyond the frame, so a poll of the descriptor still reports the next frame.
    """
    head = _exactly(stream, _HEAD.size)
    if head is None:
        return None
    letter, length = _HEAD.unpack(head)
    try:
        kind = Kind(letter)
    except ValueError:
        return None
    if length > _MOST or (kind in _OF_ONE_BYTE and length != 1):
        return None
    content = _exactly(stream, length)
    return None if content is None else (kind, content)


def _exactly(stream: int, length: int) -> bytes | None:
    content = b""
    while len(content) < length:
        some = os.read(stream, length - len(content))
        if not some:
            return None
        content += some
    return content


def _bytes(word: str) -> bytes:
    return word.encode(errors="surrogateescape")
