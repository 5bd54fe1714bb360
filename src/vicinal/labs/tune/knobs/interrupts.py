"""The processors that handle the interrupts of a network interface's device.

A value has one list of processors for each interrupt, in the order of interrupt numbers, with ` / `
in between: `0 / 1 / 0-1`. A single list is for all interrupts. So any former value can be written
again.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.topology import parse_cpu_list, show_cpu_list
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.network import Link

PART = "irq-affinity"
_BETWEEN = " / "
_MOST_SINGLE = 16
"""Up to this many processors, each is a value of its own; beyond it, as many evenly spaced ones."""


def interrupts_of(host: TunedHost, link: Link) -> list[int]:
    """Numbers of the interrupts of an interface's device, or of the PCI device below it
    (virtio).
    """
    if not link.device:
        return []
    device = host.system.path(f"sys/bus/{link.bus}/devices/{link.device}").resolve()
    for directory in (device, device.parent):
        names = host.system.names(directory / "msi_irqs")
        if names:
            return [int(name) for name in names if host.system.exists(f"proc/irq/{name}")]
    return []


class AffinityKnob:
    """The processors of all interrupts of one interface's device."""

    gentle = True
    unit = ""
    part = PART
    reaches = "where packets are handled; irqbalance, if it runs, undoes it"

    def __init__(self, host: TunedHost, link: Link) -> None:
        self._host = host
        self._link = link
        self.interface = link.name
        self.name = f"{link.name}/{PART}"

    @property
    def values(self) -> Sequence[Value]:
        """All processors, each single processor, and one processor for each interrupt in turn."""
        processors = sorted(os.sched_getaffinity(0))
        if len(processors) > _MOST_SINGLE:
            step = len(processors) / _MOST_SINGLE
            processors = [processors[int(number * step)] for number in range(_MOST_SINGLE)]
        everywhere = self._host.system.text("sys/devices/system/cpu/online") or "0"
        count = len(self._interrupts())
        spread = _BETWEEN.join(str(processors[each % len(processors)]) for each in range(count))
        found = [everywhere, *(str(processor) for processor in processors), spread]
        return tuple(dict.fromkeys(found))

    def check(self, value: Value) -> Value:
        """The lists as the kernel writes them. Raises VicinalError for an invalid list."""
        return _shortest(self._lists(value))

    def read(self) -> Value:
        """The present lists."""
        return _shortest([self._read(number) for number in self._interrupts()])

    def write(self, value: Value) -> None:
        """Set the processors of each interrupt: all interrupts, or none."""
        interrupts = self._interrupts()
        done: list[tuple[int, str]] = []
        try:
            for number, processors in zip(interrupts, self._lists(value), strict=True):
                before = self._read(number)
                self._write(number, processors)
                done.append((number, before))
        except VicinalError:
            for number, before in reversed(done):
                self._write(number, before)
            raise

    def _lists(self, value: Value) -> list[str]:
        count = len(self._interrupts())
        lists = [_normal(each) for each in str(value).split(_BETWEEN)]
        if "" in lists:
            raise VicinalError(
                f"{self.name} cannot be {value!r}",
                "write processors as 0, 0-3 or 0,2, with ` / ` between the lists of interrupts",
            )
        if len(lists) == 1:
            return lists * count
        if len(lists) != count:
            raise VicinalError(
                f"{self.name} cannot be {value!r}: the device has {count} interrupts",
                "write one list for each interrupt, or a single list",
            )
        return lists

    def _interrupts(self) -> list[int]:
        found = interrupts_of(self._host, self._link)
        if not found:
            raise VicinalError(
                f"{self.interface} has no interrupts of its own", "choose a card's interface"
            )
        return found

    def _affinity_file(self, number: int) -> Path:
        return self._host.system.path(f"proc/irq/{number}/smp_affinity_list")

    def _read(self, number: int) -> str:
        try:
            return self._affinity_file(number).read_text().strip()
        except OSError as error:
            raise VicinalError(
                f"the processors of interrupt {number} cannot be read: {describe_os_error(error)}",
                "see /proc/irq",
            ) from error

    def _write(self, number: int, processors: str) -> None:
        try:
            self._affinity_file(number).write_text(f"{processors}\n")
        except OSError as error:
            raise VicinalError(
                f"the kernel refuses to send interrupt {number} of {self.interface} to processors"
                f" {processors}: {describe_os_error(error)}",
                "be root, name existing processors, and leave out interrupts that the kernel"
                " manages itself",
            ) from error


def _shortest(lists: Sequence[str]) -> str:
    return lists[0] if len(set(lists)) == 1 else _BETWEEN.join(lists)


def _normal(text: str) -> str:
    """A list of processors as the kernel writes it; empty for an invalid list."""
    return show_cpu_list(tuple(set(parse_cpu_list(text))))
