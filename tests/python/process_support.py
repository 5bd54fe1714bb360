"""Looking at processes that may end meanwhile, and ending them."""

import signal
from collections.abc import Iterable
from contextlib import suppress

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


def named(processes: Iterable[psutil.Process], program: str) -> list[psutil.Process]:
    """Those that run a program."""
    return [process for process in processes if name_of(process) == program]


def signal_all(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each that is still there: what it does to the first may end the others."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
