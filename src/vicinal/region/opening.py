"""Opens the memory of a region: its file, or what a broker hands out.

A broker (`vicinal region serve`) sends a descriptor of its memory over a Unix socket, as it does to
members: provider/region/broker.h has the messages. Here the name of such a region is a path that
begins with `socket:`, such as socket:/run/vicinal/job42.
"""

import errno
import fcntl
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from enum import IntEnum

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.printable import printable

PREFIX = "socket:"
"""Before the absolute path of a broker's socket, in a region's name."""

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""The seals of a broker's memory: nobody can truncate it."""

_PATH_BYTES = 107
"""What the kernel permits for a socket's path."""
_MAGIC = int.from_bytes(b"VCBROKER", "little")
_VERSION = 1
_REQUEST = struct.Struct("<QII")
_ANSWER = struct.Struct("<QII240s")
_GRANTED, _OTHER_VERSION = 0, 3
_SECONDS = 10.0
_PAUSE = 0.01


class Purpose(IntEnum):
    """What a process wants a broker's memory for."""

    JOIN = 1
    """To become a member: refused if no slot is free."""
    LOOK = 2
    MANAGE = 3
    """To write what the manager of a region writes."""


def socket_of(region: str | os.PathLike[str]) -> str | None:
    """The path of the broker's socket in a region's name; None for a region in a file."""
    name = os.fspath(region)
    return name.removeprefix(PREFIX) if name.startswith(f"{PREFIX}/") else None


def check_socket_path(path: str) -> None:
    """Raise VicinalError if a socket cannot have this path."""
    if len(os.fsencode(path)) > _PATH_BYTES:
        raise VicinalError(
            f"the socket's path {path} has more than {_PATH_BYTES} bytes", "choose a shorter path"
        )


def open_region(region: str | os.PathLike[str], *, write: bool = False) -> int:
    """Open a region's file, or get its memory from its broker; return a descriptor.

    Raises VicinalError.
    """
    broker = socket_of(region)
    if broker is not None:
        return fetch(broker, Purpose.MANAGE if write else Purpose.LOOK)
    path = os.fspath(region)
    flags = os.O_RDWR if write else os.O_RDONLY | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise VicinalError(
            f"there is no region {path}", f"create the region with `vicinal region create {path}`"
        ) from error
    except PermissionError as error:
        verb = "write" if write else "read"
        raise VicinalError(
            f"cannot {verb} region {path}: {describe_os_error(error)}", "run as the region's owner"
        ) from error
    except OSError as error:
        remedy = f"name the region socket:{path}" if is_socket(path) else "check the path"
        raise VicinalError(
            f"cannot open region {path}: {describe_os_error(error)}", remedy
        ) from error


def fetch(path: str, purpose: Purpose, *, seconds: float = _SECONDS) -> int:
    """Get a descriptor of a region's memory from the broker at the socket `path`.

    Raises VicinalError if there is no broker, if the broker refuses or does not answer within
    `seconds`, or if what it sends is not sealed memory.
    """
    check_socket_path(path)
    deadline = time.monotonic() + seconds
    answer, descriptors = b"", list[int]()
    while not answer:
        left = deadline - time.monotonic()
        try:
            with suppress(ConnectionResetError, BrokenPipeError):
                answer, descriptors = _ask(path, purpose, max(left, _PAUSE))
        except OSError as error:
            raise _unreachable(path, error, seconds) from error
        if not answer:
            for each in descriptors:  # of a message without bytes
                os.close(each)
            descriptors = []
            if left < 0:
                break
            time.sleep(_PAUSE)  # the broker's supervisor starts another server
    try:
        _judge(path, answer, descriptors)
        _check_memory(path, descriptors[0])
    except BaseException:
        for each in descriptors:
            os.close(each)
        raise
    return descriptors[0]


def _ask(path: str, purpose: Purpose, seconds: float) -> tuple[bytes, list[int]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.send(_REQUEST.pack(_MAGIC, _VERSION, purpose))
        answer, descriptors, _, _ = socket.recv_fds(
            connection, 2 * _ANSWER.size, 4, socket.MSG_CMSG_CLOEXEC
        )
    return answer, descriptors


def _judge(path: str, answer: bytes, descriptors: list[int]) -> None:
    if not answer:
        raise VicinalError(
            f"the broker at {path} closed the connection without an answer",
            "see what the broker printed, and try again",
        )
    if len(answer) == _ANSWER.size:
        magic, version, verdict, reason = _ANSWER.unpack(answer)
        if magic == _MAGIC and version != _VERSION:
            raise VicinalError(
                f"the broker at {path} speaks version {version} of its protocol, and this command "
                f"version {_VERSION}",
                "use one Vicinal for both",
            )
        if magic == _MAGIC and verdict == _GRANTED and len(descriptors) == 1:
            return
        if magic == _MAGIC and verdict != _GRANTED:
            text = printable(reason.split(b"\0", 1)[0].decode("utf-8", "replace"))
            message, _, remedy = (text or "it gave no reason").partition(": ")
            raise VicinalError(
                f"the broker at {path} refused: {message}", remedy or "see what the broker printed"
            )
    raise VicinalError(
        f"what listens on {path} does not answer as a broker",
        "name the socket of `vicinal region serve`",
    )


def _check_memory(path: str, descriptor: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # not memory
        seals = 0
    if seals & SEALS != SEALS:
        raise VicinalError(
            f"the broker at {path} handed out something else than sealed memory",
            "use the broker of `vicinal region serve`",
        )


def _unreachable(path: str, error: OSError, seconds: float) -> VicinalError:
    serve = f"`vicinal region serve --socket {path}`"
    if isinstance(error, FileNotFoundError):
        return VicinalError(f"there is no broker's socket {path}", f"start the broker with {serve}")
    if isinstance(error, ConnectionRefusedError):
        if is_socket(path):
            return VicinalError(
                f"no broker listens on {path} any more", f"start the broker again with {serve}"
            )
        return VicinalError(
            f"{path} is not a socket", f"name a broker's socket, or write file:{path}"
        )
    if isinstance(error, PermissionError):
        return VicinalError(
            f"this user may not connect to the broker's socket {path}",
            "let the broker's owner allow the user (--allow-uid, --allow-gid), and open the "
            "directories above the socket to the user",
        )
    if isinstance(error, TimeoutError | BlockingIOError):
        return VicinalError(
            f"the broker at {path} did not answer within {seconds:g} s",
            f"end what listens there, and start the broker again with {serve}",
        )
    if error.errno == errno.EPROTOTYPE:
        return VicinalError(
            f"{path} is the socket of another service", "name the socket of `vicinal region serve`"
        )
    return VicinalError(
        f"cannot ask the broker at {path}: {describe_os_error(error)}",
        "see what the broker printed, and try again",
    )


def is_socket(path: str) -> bool:
    """Whether there is a socket at `path`, and not a link to one."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
