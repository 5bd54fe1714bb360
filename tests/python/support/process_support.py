"""Inspects and ends processes, which may end at any time by themselves."""

import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def name_of(process: psutil.Process) -> str:
    """The name of the process's program, or an empty text if it has ended."""
    with suppress(psutil.Error):
        return process.name()
    return ""


def words_of(process: psutil.Process) -> list[str]:
    """The process's command line, or an empty list if it has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def parent_of(process: psutil.Process) -> int | None:
    """The number of the process's parent, or None if the process has ended."""
    with suppress(psutil.Error):
        return process.ppid()
    return None


def pid_namespace(process: int | None) -> str:
    """The PID namespace of a process, as /proc/PID/ns/pid shows it. Empty if it has ended."""
    with suppress(OSError):
        return str(Path(f"/proc/{process}/ns/pid").readlink())
    return ""


def named(processes: Iterable[psutil.Process], program: str) -> list[psutil.Process]:
    """The processes that run a program."""
    return [process for process in processes if name_of(process) == program]


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each process that still exists. The first signal may end others too."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
