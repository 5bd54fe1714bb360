"""What the machine was like while a trial ran: all that may have disturbed it.

Counts are those of the whole host from the beginning of the trial to its end; the trial's own
doings are among them.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from vicinal.labs.study.result.layout import Condition

_PRESSURE = Path("/proc/pressure/cpu")


class Conditions:
    """Begins to count when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._load = os.getloadavg()[0]
        self._times = psutil.cpu_times()
        self._stats = psutil.cpu_stats()
        self._stalled = _stalled_microseconds()

    def end(self) -> dict[str, Any]:
        """All of it, as a trial has it; what this kernel does not say is left out."""
        seconds = time.monotonic() - self._began
        times, stats = psutil.cpu_times(), psutil.cpu_stats()
        found: dict[str, Any] = {
            Condition.LOAD.value: round(self._load, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "busy_seconds": round(_busy(times) - _busy(self._times), 3),
            "interrupts_per_second": round((stats.interrupts - self._stats.interrupts) / seconds),
            "context_switches_per_second": round(
                (stats.ctx_switches - self._stats.ctx_switches) / seconds
            ),
        }
        steal, total = getattr(times, "steal", None), _total(times) - _total(self._times)
        if steal is not None and total > 0:
            found[Condition.STEAL.value] = round((steal - self._times.steal) / total, 4)
        stalled = _stalled_microseconds()
        if stalled is not None and self._stalled is not None:
            found["stalled_for_processors_seconds"] = round((stalled - self._stalled) / 1e6, 3)
        with suppress(OSError, NotImplementedError, RuntimeError):
            frequency = psutil.cpu_freq()
            if frequency is not None and frequency.current > 0:
                found["frequency_mhz"] = round(frequency.current, 1)
        return found


def _busy(times: Any) -> float:
    """Seconds of processor time that were used, by whomever on this host."""
    return float(_total(times) - times.idle - times.iowait - getattr(times, "steal", 0.0))


def _total(times: Any) -> float:
    """Seconds of all processors together."""
    # What virtual machines used is in `user` and `nice` already.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - guests)


def _stalled_microseconds() -> int | None:
    """For how long some task had to wait for a processor; None where the kernel does not count."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _PRESSURE.read_text().splitlines()
        some = next(line for line in lines if line.startswith("some"))
        return int(some.rpartition("total=")[2])
    return None
