"""Serves regions: makes their memory and sockets, and becomes the broker that hands them out.

The broker is a small program of C (provider/broker), because it may run for weeks beside each job.
It gets its memory and its listening sockets as descriptors, and this process's number.
"""

import errno
import fcntl
import grp
import os
import pwd
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.native import native_directory, native_remedy
from vicinal.region.creation import Region, create_memory
from vicinal.region.opening import check_socket_path, is_socket

BROKER_FILE = "vicinal-region-broker"
REGIONS_MAX = 256
RULES_MAX = 64

_BACKLOG = 4096
_CONNECT_SECONDS = 1.0
_LOCK_SECONDS = 5.0
_MOST = (1 << 32) - 2
"""The highest number of a user or group."""


@dataclass(frozen=True)
class Rules:
    """The processes that may have a region, by numbers of this process's user namespace."""

    users: tuple[range, ...] = ()
    groups: tuple[range, ...] = ()
    anyone: bool = False

    @classmethod
    def parse(cls, users: Sequence[str], groups: Sequence[str], *, anyone: bool) -> "Rules":
        """Parse names, numbers and ranges FIRST-LAST of users and groups.

        This user is always allowed. Raises VicinalError.
        """
        users = [str(os.geteuid()), *users]
        if len(users) + len(groups) > RULES_MAX:
            raise VicinalError(
                f"{len(users) + len(groups)} users and groups are more than {RULES_MAX}",
                "write ranges (FIRST-LAST), or name a group that has the users",
            )
        return cls(
            tuple(dict.fromkeys(_numbers(each, "user") for each in users)),
            tuple(_numbers(each, "group") for each in groups),
            anyone,
        )

    @property
    def only_own(self) -> bool:
        """Whether only processes of this user are allowed."""
        own = range(os.geteuid(), os.geteuid() + 1)
        return not self.anyone and not self.groups and all(each == own for each in self.users)

    @property
    def words(self) -> str:
        """The rules in the broker's notation."""
        return ",".join(
            [
                *(["any"] if self.anyone else []),
                *(f"uid:{each[0]}-{each[-1]}" for each in self.users),
                *(f"gid:{each[0]}-{each[-1]}" for each in self.groups),
            ]
        )

    def __str__(self) -> str:
        if self.anyone:
            return "every process that reaches the socket"
        said = [f"user {_range_text(each)}" for each in self.users]
        return ", ".join(said + [f"group {_range_text(each)}" for each in self.groups])


def _range_text(numbers: range) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _numbers(text: str, kind: str) -> range:
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() or not dash):
        numbers = range(int(first), int(last or first) + 1)
        if numbers and numbers[-1] <= _MOST:
            return numbers
    else:
        with suppress(KeyError):
            found = pwd.getpwnam(text).pw_uid if kind == "user" else grp.getgrnam(text).gr_gid
            return range(found, found + 1)
    raise VicinalError(
        f"{text!r} is no {kind} of this host", "write a name, a number, or numbers FIRST-LAST"
    )


class Serving:
    """Regions whose sockets listen, for become_broker(). close() removes the sockets again."""

    def __init__(self, rules: Rules, *, members: int, idle_seconds: int) -> None:
        self.rules = rules
        self.members = members
        self.idle_seconds = idle_seconds
        self.regions: list[Region] = []
        self._descriptors: list[tuple[int, int]] = []
        self._program = _broker_program()

    def add(self, path: Path, *, section_bytes: int, heap_bytes: int, label: str) -> Region:
        """Create a region, and listen for processes that want it at `path`.

        They wait until become_broker(). Raises VicinalError.
        """
        path = path.absolute()
        check_socket_path(str(path))
        memory, region = create_memory(
            path,
            members=self.members,
            section_bytes=section_bytes,
            heap_bytes=heap_bytes,
            label=label,
        )
        try:
            listener = _listen(path, to_others=not self.rules.only_own)
        except BaseException:
            os.close(memory)
            raise
        self.regions.append(region)
        self._descriptors.append((listener, memory))
        return region

    def become_broker(self) -> NoReturn:
        """Replace this process by the broker. Raises VicinalError if that is impossible."""
        words = [str(self._program), str(self.members), str(self.idle_seconds), self.rules.words]
        for region, (listener, memory) in zip(self.regions, self._descriptors, strict=True):
            words += [str(region.path), str(listener), str(memory)]
            os.set_inheritable(listener, True)
            os.set_inheritable(memory, True)
        try:
            os.execv(self._program, words)
        except OSError as error:
            raise VicinalError(
                f"cannot run {self._program}: {describe_os_error(error)}", native_remedy()
            ) from error

    def close(self) -> None:
        """Remove the sockets, and give the memory back."""
        for region, descriptors in zip(self.regions, self._descriptors, strict=True):
            region.remove()
            for each in descriptors:
                os.close(each)
        self.regions, self._descriptors = [], []


def _broker_program() -> Path:
    native = native_directory()
    if native is None or not (native / BROKER_FILE).is_file():
        raise VicinalError(f"this installation has no {BROKER_FILE}", native_remedy())
    return native / BROKER_FILE


def _listen(path: Path, *, to_others: bool) -> int:
    with _only_one(path.parent):
        _make_way(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            mask = os.umask(0o177)  # until it listens, nobody else may connect
            try:
                listener.bind(str(path))
            except OSError as error:
                raise _cannot_make(path, error) from error
            finally:
                os.umask(mask)
            try:
                listener.listen(_BACKLOG)
                if to_others:
                    path.chmod(0o666)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            return listener.detach()


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Keep other brokers from making way for themselves in `directory` at the same time."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_make(directory / "socket", error) from error
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise VicinalError(
                        f"another process keeps {directory} locked", "choose another directory"
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _make_way(path: Path) -> None:
    """Remove the socket of a broker that ended by force. Raises VicinalError if one lives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            _remove_stale(path)
            return
        except OSError as error:
            if error.errno == errno.EPROTOTYPE:
                raise VicinalError(
                    f"{path} is the socket of another service", "choose another path"
                ) from error
            if not isinstance(error, BlockingIOError | TimeoutError):  # it listens, and is busy
                raise _cannot_make(path, error) from error
    raise VicinalError(
        f"a broker serves socket:{path} already", "end that broker first, or choose another path"
    )


def _remove_stale(path: Path) -> None:
    if not is_socket(str(path)):
        raise VicinalError(f"{path} exists and is not a socket", "choose another path")
    try:
        path.unlink()
    except OSError as error:
        raise VicinalError(
            f"cannot remove the socket that a broker left at {path}: {describe_os_error(error)}",
            "have its owner remove it, or choose another path",
        ) from error


def _cannot_make(path: Path, error: OSError) -> VicinalError:
    return VicinalError(
        f"cannot make the socket {path}: {describe_os_error(error)}",
        "choose a directory that you may write to, such as one in /run or /tmp",
    )


def closed_directory(path: Path) -> Path | None:
    """The first directory above `path` through which users without a group there cannot pass."""
    for each in reversed(path.absolute().parents):
        with suppress(OSError):
            if not each.stat().st_mode & stat.S_IXOTH:
                return each
    return None
