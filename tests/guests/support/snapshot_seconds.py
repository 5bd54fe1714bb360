"""How long guests take to start from a snapshot, and by booting: snapshot_seconds.py [TIMES]

It measures from the call of start_guests() until a command has run in each guest, for one guest and
for two at once, in random order. Before, it makes the snapshot and the image, and finds out whether
KVM works. Processor seconds include all started processes and this process.
"""

import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.cluster.vm.snapshot.starting import GuestMake, start_guests
from vicinal.region.creation import create

WAYS = {"snapshot": True, "boot": False}


def processor_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def started(guests: int, *, snapshot: bool) -> tuple[float, float]:
    """Seconds, and processor seconds, until guests with a region have run a command."""
    with tempfile.TemporaryDirectory(prefix="vicinal-") as temporary:
        directory = Path(temporary)
        region = directory / "region"
        create(region, members=8, for_guests=True)
        makes = [GuestMake(f"node{number}") for number in range(guests)]
        before, began = processor_seconds(), time.perf_counter()
        running = start_guests(makes, directory, region, snapshot=snapshot)
        try:
            for each in running:
                assert each.shell.run(["hostname"]).stdout.strip() == each.name
            took = time.perf_counter() - began
        finally:
            for each in running:
                each.stop()
        return took, processor_seconds() - before


def show(what: str, found: dict[str, list[float]]) -> None:
    medians = {way: statistics.median(each) for way, each in found.items()}
    texts = [
        f"{way} {medians[way]:.2f} ({min(each):.2f} to {max(each):.2f})"
        for way, each in found.items()
    ]
    ratio = medians["boot"] / medians["snapshot"]
    print(f"  {what}: {', '.join(texts)}: {ratio:.2f} times as much", flush=True)


def main(times: int) -> None:
    qemu, image = find_qemu(), build_image(print)
    print(f"QEMU {qemu.version}, {choose_accelerator(qemu, image, print)}")
    for guests in (1, 2):
        started(guests, snapshot=True)
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        used: dict[str, list[float]] = {way: [] for way in WAYS}
        loads = []
        for _ in range(times):
            for way in random.sample(list(WAYS), len(WAYS)):
                loads.append(os.getloadavg()[0])
                seconds, processors = started(guests, snapshot=WAYS[way])
                took[way].append(seconds)
                used[way].append(processors)
        print(f"{guests} at once, medians of {times}, load {min(loads):.1f} to {max(loads):.1f}:")
        show("seconds", took)
        show("seconds of processors", used)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
