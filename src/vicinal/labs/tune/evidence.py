"""Counters of the host during a trial: interrupts, soft interrupts, switches, stolen time.

    before = read_counters()
    ...  # the trial
    evidence = read_counters().since(before).to_dict()

Counts are of the whole host. The parsers take text as the kernel writes it. If a kernel has no such
counter, the value is None or empty, never zero.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_WRAP = 1 << 32
"""The kernel's interrupt counters are 32 bits wide."""


@dataclass(frozen=True)
class ProcessorTimes:
    """Times of all processors together, in clock ticks since boot; from /proc/stat."""

    busy: int
    """All time except idle time, waiting for input and output, and stolen time."""
    stolen: int
    total: int
    context_switches: int


@dataclass(frozen=True)
class Evidence:
    """The differences of the counters between two moments."""

    seconds: float
    interrupts: Mapping[str, int]
    """By vector and device, such as `41 virtio3-rx`. Vectors without a number are the processors'
    own. Vectors without a count are left out.
    """
    softirqs: Mapping[str, int]
    context_switches: int | None
    switches_of_process: Mapping[str, int]
    """`voluntary` and `nonvoluntary`, if a process was named."""
    busy_seconds: float | None
    """Processor time that all processes used."""
    steal: float | None
    """The share of processor time that the hypervisor gave to others, 0 to 1."""
    frequency_mhz: float | None
    """The mean of the processors' frequencies at the end."""

    to_dict = asdict


@dataclass(frozen=True)
class Counters:
    """The kernel's counters at one moment."""

    moment: float
    """In s, of a monotonic clock."""
    interrupts: Mapping[str, int]
    softirqs: Mapping[str, int]
    times: ProcessorTimes | None
    switches: Mapping[str, int]
    frequency_mhz: float | None

    def since(self, before: "Counters") -> Evidence:
        """The differences from `before` to this moment."""
        ticks = os.sysconf("SC_CLK_TCK")
        now, then = self.times, before.times
        total = now.total - then.total if now and then else 0
        return Evidence(
            seconds=self.moment - before.moment,
            interrupts=_grown(self.interrupts, before.interrupts),
            softirqs=_grown(self.softirqs, before.softirqs),
            context_switches=now.context_switches - then.context_switches if now and then else None,
            switches_of_process={
                name: count - before.switches.get(name, 0) for name, count in self.switches.items()
            },
            busy_seconds=(now.busy - then.busy) / ticks if now and then else None,
            steal=(now.stolen - then.stolen) / total if now and then and total > 0 else None,
            frequency_mhz=self.frequency_mhz,
        )


def read_counters(
    process: int | None = None,
    *,
    proc: Path = Path("/proc"),
    cpus: Path = Path("/sys/devices/system/cpu"),
) -> Counters:
    """Read all counters now; with `process`, also the context switches of this process."""
    status = _text(proc / str(process) / "status") if process is not None else ""
    stat = _text(proc / "stat")
    return Counters(
        moment=time.monotonic(),
        interrupts=parse_interrupts(_text(proc / "interrupts")),
        softirqs=parse_softirqs(_text(proc / "softirqs")),
        times=parse_stat(stat) if stat else None,
        switches=parse_switches(status),
        frequency_mhz=_frequency(cpus, proc),
    )


def parse_interrupts(text: str) -> dict[str, int]:
    """Parse /proc/interrupts: the count of all processors together, by vector and device.

    A numbered vector's key is the number and the last word of its line, which is the device's name.
    The key of any other vector is its letters.
    """
    head, *lines = text.splitlines() or [""]
    processors = len(head.split())
    found = {}
    for line in lines:
        name, colon, rest = line.partition(":")
        if not colon:
            continue
        words = rest.split()
        counts = []
        for word in words[:processors]:
            if not word.isdigit():
                break  # ERR and MIS have a single count for all processors
            counts.append(int(word))
        device = words[-1] if len(words) > len(counts) else ""
        name = name.strip()
        found[f"{name} {device}".strip() if name.isdigit() else name] = sum(counts)
    return found


def parse_softirqs(text: str) -> dict[str, int]:
    """Parse /proc/softirqs: the count of all processors together, by name."""
    found = {}
    for line in text.splitlines()[1:]:
        name, _, counts = line.partition(":")
        found[name.strip()] = sum(map(int, counts.split()))
    return found


def parse_stat(text: str) -> ProcessorTimes:
    """Parse /proc/stat. Raises ValueError if the text is not in its format."""
    lines = {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}
    try:
        # user nice system idle iowait irq softirq steal; user and nice include the time of guests.
        times = [int(word) for word in lines["cpu"][:8]]
        user, nice, system, _idle, _waiting, irq, softirq, stolen = times
        switches = int(lines["ctxt"][0])
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"these are no processor times ({error})") from error
    return ProcessorTimes(user + nice + system + irq + softirq, stolen, sum(times), switches)


def parse_switches(text: str) -> dict[str, int]:
    """Parse /proc/PID/status: `voluntary` and `nonvoluntary` context switches of the main
    thread.
    """
    found = {}
    for line in text.splitlines():
        name, _, count = line.partition(":")
        if name.endswith("_ctxt_switches"):
            found[name.removesuffix("_ctxt_switches")] = int(count)
    return found


def parse_frequencies(text: str) -> list[float]:
    """Parse /proc/cpuinfo: MHz of each processor; empty on hosts that do not report it."""
    lines = (line.partition(":") for line in text.splitlines())
    return [float(value) for name, _, value in lines if name.strip() == "cpu MHz"]


def _frequency(cpus: Path, proc: Path) -> float | None:
    """The governor's mean frequency, or that of /proc/cpuinfo, which a virtual machine may never
    update.
    """
    scaled = [_text(path) for path in sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))]
    kilohertz = [int(text) for text in scaled if text.strip().isdigit()]
    if kilohertz:
        return sum(kilohertz) / len(kilohertz) / 1000
    found = parse_frequencies(_text(proc / "cpuinfo"))
    return sum(found) / len(found) if found else None


def _grown(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """The growth of each count; a device that appeared in between starts at zero."""
    found = {}
    for name, count in now.items():
        grown = count - before.get(name, 0)
        if grown:
            found[name] = grown if grown > 0 else grown % _WRAP
    return found


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


def add_work(evidence: Evidence, work: float) -> dict[str, Any]:
    """Evidence as data, with the trial's work in messages or bytes, the same unit in all trials."""
    return {**evidence.to_dict(), "work": work}
