"""Looking at processes that may end meanwhile, and ending them."""

import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def name_of(process: psutil.Process) -> str:
    """The name of its program; empty when it has ended."""
    with suppress(psutil.Error):
        return process.name()
    return ""


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty when it has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def parent_of(process: psutil.Process) -> int | None:
    """The number of its parent; None when it has ended."""
    with suppress(psutil.Error):
        return process.ppid()
    return None


def pid_namespace(process: int | None) -> str:
    """The PID namespace of a process, as /proc/PID/ns/pid shows it; empty when it has ended."""
    with suppress(OSError):
        return str(Path(f"/proc/{process}/ns/pid").readlink())
    return ""


def named(processes: Iterable[psutil.Process], program: str) -> list[psutil.Process]:
    """Those that run a program."""
    return [process for process in processes if name_of(process) == program]


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each that is still there: what it does to the first may end the others."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
