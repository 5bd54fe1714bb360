"""One trial: a fresh launch, its time limit, its output, and the machine's condition.

Conditions are counters of the whole host between the beginning and the end of the trial. They
include the trial itself.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from vicinal.base.errors import VicinalError
from vicinal.labs.provenance import now
from vicinal.labs.study.environments.opened import Launched, OpenEnvironment
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Condition, Trial
from vicinal.labs.study.running.plan import Planned
from vicinal.labs.study.workloads.driver import Driver, Measured, Tools

_PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True)
class Tried:
    """A trial with its measurements, or with the reason why it failed."""

    trial: Trial
    measured: Measured | None
    """The measurements; None after a failure."""
    failure: str = ""
    launched: Launched | None = None


def run_trial(
    planned: Planned,
    workload: Workload,
    driver: Driver,
    environment: OpenEnvironment,
    tools: Tools,
    seconds: float,
) -> Tried:
    """Launch a workload, for at most `seconds`. Any error of the launch makes a failed trial."""
    started, conditions = now(), Conditions()
    program = driver.program(workload, environment.environment.mpi, tools)
    launched = environment.launch(program, seconds)
    found = conditions.end() | {Condition.EMULATED.value: environment.emulated}

    def made(measured: Measured) -> Trial:
        return Trial(
            environment=planned.named,
            workload=planned.workload,
            block=planned.block,
            started=started,
            seconds=launched.seconds,
            conditions=found
            | ({Condition.PROGRAM.value: measured.facts} if measured.facts else {}),
            figures=tuple(measured.figures),
        )

    failure = launched.trouble
    if failure is None:
        try:
            measured = driver.read(workload, launched.stdout.decode(errors="replace"))
            failure = _lacking(measured) or environment.spread_trouble(measured.facts, program)
            if failure is None:
                return Tried(made(measured), measured)
        except VicinalError as error:
            failure = str(error)
    return Tried(made(Measured()), None, failure, launched)


def _lacking(measured: Measured) -> str | None:
    if not measured.series and not measured.figures:
        return "the program succeeded but printed no measured values"
    return None


class Conditions:
    """Starts counting at construction."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._load = os.getloadavg()[0]
        self._times = psutil.cpu_times()
        self._stats = psutil.cpu_stats()
        self._stalled = _stalled_microseconds()

    def end(self) -> dict[str, Any]:
        """All conditions, as a trial stores them; without values that this kernel does not
        report.
        """
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
    """Seconds of processor time that all processes on this host used."""
    return float(_total(times) - times.idle - times.iowait - getattr(times, "steal", 0.0))


def _total(times: Any) -> float:
    """Seconds of all processors together."""
    # `user` and `nice` already include the time of virtual machines.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - guests)


def _stalled_microseconds() -> int | None:
    """How long some task had to wait for a processor; None if the kernel does not count it."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _PRESSURE.read_text().splitlines()
        some = next(line for line in lines if line.startswith("some"))
        return int(some.rpartition("total=")[2])
    return None


@dataclass(frozen=True)
class Limits:
    """Limits for the launches of a study."""

    least_seconds: float = 60.0
    """Time that every launch gets, even if it has little to do, because machines may be busy."""
    times_expected: float = 10.0
    """A launch may take this multiple of its workload's expected time in addition."""
    given_seconds: float | None = None
    """The user's limit for every launch, instead of the limit that the two fields above give."""
    failures: int = 3
    """Failures in a row after which a workload is given up in an environment."""

    def seconds(self, workload: Workload, patience: float) -> float:
        """The limit for one launch; `patience` is the environment's."""
        if self.given_seconds is not None:
            return self.given_seconds
        return (self.least_seconds + self.times_expected * expected_seconds(workload)) * patience


def expected_seconds(workload: Workload) -> float:
    """The approximate time of a launch while no launch was measured yet."""
    return workload.seconds * max(1, len(workload.sizes)) * 1.25 + 1.0
