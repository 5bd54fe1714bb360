"""Starts, finds and ends daemons: processes that outlive the command that started them.

A daemon runs a module of this package. It has a session of its own, so neither Ctrl-C nor the end
of a terminal reaches it. It is not a child of the command, so no command has to reap it.

    the command                               the daemon
    launch()       ── setsid --fork ──▶       claims its file: claim()
    await_ready()  ◀── a line ──────────      is ready
                   ◀── end of file ─────      has ended; its log says why

    a later command
    claimant(), or Identity                   finds it
    end()          ── SIGTERM, SIGKILL ──▶    ends

A PID in a file proves nothing: another process may have the PID when the file is read, and a
command may be killed before it writes the PID. So a daemon locks a file as long as it lives, and
the kernel tells which process has the lock. A daemon that cannot lock a file is identified by its
PID, its start time and the boot: Identity.
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
"""After this time, a process that has not ended gets its signal again."""

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
    """The last lines of a daemon's log: at most `count`, none if the log is missing."""
    try:
        return log.read_text(errors="replace").strip().splitlines()[-count:]
    except OSError:
        return []


def claim(descriptor: int, file: Path) -> bool:
    """Lock a file for as long as this process lives; returns whether that worked.

    It fails if another process has the lock, or if the file was removed.

    `descriptor` is open for writing on the file. Closing any other descriptor of the file in this
    process would release the lock.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except OSError:
        return False


def claimant(file: Path) -> int | None:
    """The PID of the process that has locked the file; None if there is none, or no file.

    0 if the process is in another PID namespace, where it has no PID that is valid here.
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
    """Distinguishes a process from all earlier and later processes with the same PID."""

    number: int
    began: int | None
    """The result of started(); None if the process had ended already."""
    boot: str

    @classmethod
    def of(cls, number: int) -> "Identity":
        """The identity of the process that has this PID now."""
        return cls(number, started(Path(f"/proc/{number}")), boot())

    @property
    def process(self) -> int | None:
        """The PID while the process runs; None afterwards."""
        if self.began is None or self.boot != boot():
            return None
        return self.number if started(Path(f"/proc/{self.number}")) == self.began else None


def boot() -> str:
    """The kernel's identifier of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def started(process: Path) -> int | None:
    """A process's start time, in clock ticks since boot; None if it has ended or is a zombie.

    `process` is its directory /proc/PID.
    """
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
    """End the process that `find` returns, if there is one, and wait for its end.

    The process gets SIGTERM for `gentle_seconds`, and then SIGKILL. Raises VicinalError if the
    process does not end within `seconds`, or if it is in another PID namespace, for which `find`
    returns 0.
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
                # The PID may belong to another process by now.
                if find() == process:
                    number = signal.SIGTERM if waited < gentle_seconds else signal.SIGKILL
                    signal.pidfd_send_signal(descriptor, number)
                select.select([descriptor], [], [], _SIGNAL_SECONDS)
            finally:
                os.close(descriptor)


def processes_with(is_wanted: Callable[[list[str]], bool]) -> "list[psutil.Process]":
    """The processes of this host whose command line `is_wanted` accepts."""
    import psutil  # loaded only here, because few commands need it

    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if is_wanted(process.info["cmdline"] or [])
    ]


def end_all(
    found: "Sequence[psutil.Process]", *, gentle_seconds: float = 0.0, seconds: float
) -> None:
    """End processes by the signals of end(), as far as this user may; some may remain."""
    import psutil

    left = list(found)
    for limit, number in ((gentle_seconds, signal.SIGTERM), (seconds, signal.SIGKILL)):
        if limit > 0.0:
            for process in left:
                with suppress(psutil.Error):
                    process.send_signal(number)
            _, left = psutil.wait_procs(left, limit)
