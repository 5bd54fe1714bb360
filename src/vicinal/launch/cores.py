"""Chooses the processors to which ranks are pinned."""

import os
from pathlib import Path

from vicinal.host.topology import parse_cpu_list


def usable_cpus() -> list[int]:
    """The processors that this process may use: first one hardware thread of each core, then the
    second threads.
    """
    allowed = sorted(os.sched_getaffinity(0))
    return sorted(allowed, key=lambda cpu: (_thread(cpu, allowed), cpu))


def _thread(cpu: int, allowed: list[int]) -> int:
    """The index of a processor among the usable hardware threads of its core, from 0."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    if not siblings.is_file():
        return 0
    return [c for c in parse_cpu_list(siblings.read_text()) if c in allowed].index(cpu)
