"""Processes that outlive the command which starts them: to start, to find and to end one.

A daemon is a module of this package. It runs in a session of its own, so neither Ctrl-C nor the end
of a terminal reaches it, and it is no command's child, so no command has to reap it.

    the command                               the daemon
    launch()       ── setsid --fork ──▶       claims its file: claim()
    await_ready()  ◀── a line ──────────      is ready
                   ◀── end of file ─────      has ended; its log says why

    a later command
    claimant(), or Identity                   finds it
    end()          ── SIGTERM, SIGKILL ──▶    ends

A process number in a file proves nothing: the number may be another process's by the time it is
read, and a command may be killed before it wrote the number. So a daemon locks a file as long as it
lives, and the kernel says which process has the lock. A daemon that cannot lock a file is known by
its number, by the time when it began and by the boot: Identity.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import vicinal
from vicinal.base.errors import VicinalError

if TYPE_CHECKING:
    import psutil

_POLL_SECONDS = 0.02
_SIGNAL_SECONDS = 1.0
"""After this a process that has not ended gets its signal again."""

# struct flock of a 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class NotReadyError(Exception):
    """A daemon did not become ready. The text says what it did: "ended", or "did not answer"."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package, in module_environment()."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """This process's environment, in which Python finds this package first."""
    package = str(Path(vicinal.__file__).resolve().parents[1])
    search = filter(None, [package, os.environ.get("PYTHONPATH")])
    return os.environ | {"PYTHONPATH": os.pathsep.join(search)}


def launch(
    module: str,
    arguments: Sequence[str],
    log: Path,
    *,
    inherited: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> int:
    """Start a module of this package as a daemon; returns the descriptor for await_ready().

    The module gets `arguments` and, as the last one, the number of a descriptor. It writes a line
    there when it is ready, or holds the descriptor open as long as it lives. It gets the
    descriptors `inherited` under their numbers, and the variables `environment` besides those of
    this process. What it writes otherwise is appended to `log`.

    Raises OSError if the log cannot be opened, and VicinalError if the tool setsid cannot be used.
    """
    with log.open("ab") as output:
        reader, writer = os.pipe()
        try:
            subprocess.run(
                ["setsid", "--fork", *module_command(module, *arguments, str(writer))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=module_environment() | dict(environment or {}),
                pass_fds=(writer, *inherited),
                cwd="/",
                check=True,
            )
        except BaseException as error:
            os.close(reader)
            if isinstance(error, OSError | subprocess.CalledProcessError):
                raise VicinalError(
                    "the tool setsid cannot be used",
                    "install util-linux, with its programs in PATH",
                ) from error
            raise
        finally:
            os.close(writer)
    return reader


def await_ready(
    alive: int | None, seconds: float, is_ready: Callable[[], bool] | None = None
) -> bytes:
    """Wait until a daemon is ready, by the line that it writes or by `is_ready`; returns the line.

    `alive` is what launch() returned, and is closed; None for a daemon that another command
    started. Raises NotReadyError.
    """
    deadline = time.monotonic() + seconds
    said = b""
    try:
        while is_ready is None or not is_ready():
            rest = max(0.0, deadline - time.monotonic())
            pause = rest if is_ready is None else min(rest, _POLL_SECONDS)
            if select.select([] if alive is None else [alive], [], [], pause)[0]:
                assert alive is not None
                more = os.read(alive, 1 << 16)
                said += more
                if said.endswith(b"\n"):
                    break
                if not more:
                    raise NotReadyError("ended")
            if time.monotonic() > deadline:
                raise NotReadyError(f"did not answer within {seconds:g} s")
        return said
    finally:
        if alive is not None:
            os.close(alive)


def last_lines(log: Path, count: int = 1) -> list[str]:
    """The last that a daemon wrote into its log: at most `count` lines, which may be none."""
    try:
        return log.read_text(errors="replace").strip().splitlines()[-count:]
    except OSError:
        return []


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


@dataclass(frozen=True)
class Identity:
    """What tells a process from all that had or will have its number."""

    number: int
    began: int | None
    """As started() says; None: it had ended by then."""
    boot: str

    @classmethod
    def of(cls, number: int) -> "Identity":
        """That of the process which has the number now."""
        return cls(number, started(Path(f"/proc/{number}")), boot())

    @property
    def process(self) -> int | None:
        """The number while the process runs; None afterwards."""
        if self.began is None or self.boot != boot():
            return None
        return self.number if started(Path(f"/proc/{self.number}")) == self.began else None


def boot() -> str:
    """An identifier of the time since the kernel was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def started(process: Path) -> int | None:
    """When a process (/proc/PID) began, in the kernel's ticks; None if it is gone or a zombie."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in ("Z", "X") else None


def end(
    find: Callable[[], int | None],
    name: str,
    seconds: float,
    *,
    gentle_seconds: float = 0.0,
    remedy: str = "end it by hand",
) -> None:
    """End the process that `find` finds, if there is one, and wait for its end.

    It gets SIGTERM for `gentle_seconds`, and then SIGKILL. Raises VicinalError if the process does
    not end within `seconds`, or if it is in another PID namespace, for which `find` returns 0.
    `name` and `remedy` are for the messages.
    """
    begun = time.monotonic()
    while (process := find()) is not None:
        waited = time.monotonic() - begun
        if process == 0:
            raise VicinalError(
                f"{name} is in another PID namespace",
                "call this command where `vicinal up` was called, such as in the container",
            )
        if waited > seconds:
            raise VicinalError(f"{name}, process {process}, does not end", remedy)
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process)
            try:
                # Not another that has got its number meanwhile.
                if find() == process:
                    number = signal.SIGTERM if waited < gentle_seconds else signal.SIGKILL
                    signal.pidfd_send_signal(descriptor, number)
                select.select([descriptor], [], [], _SIGNAL_SECONDS)
            finally:
                os.close(descriptor)


def processes_with(is_wanted: Callable[[list[str]], bool]) -> "list[psutil.Process]":
    """The processes of this host whose command line `is_wanted`; its words are in `info`."""
    import psutil  # commands that never ask need none

    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if is_wanted(process.info["cmdline"] or [])
    ]


def end_all(
    found: "Sequence[psutil.Process]", *, gentle_seconds: float = 0.0, seconds: float
) -> None:
    """End processes as end() does, as far as this user may; those that do not end stay."""
    import psutil

    left = list(found)
    for limit, number in ((gentle_seconds, signal.SIGTERM), (seconds, signal.SIGKILL)):
        if limit > 0.0:
            for process in left:
                with suppress(psutil.Error):
                    process.send_signal(number)
            _, left = psutil.wait_procs(left, limit)
