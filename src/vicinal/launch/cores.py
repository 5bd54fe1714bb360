"""Which processors ranks are pinned to."""

import os
from pathlib import Path

from vicinal.host.topology import parse_cpu_list


def usable_cpus() -> list[int]:
    """The processors this process may use, whole cores first, then their second threads."""
    allowed = sorted(os.sched_getaffinity(0))
    return sorted(allowed, key=lambda cpu: (_thread(cpu, allowed), cpu))


def _thread(cpu: int, allowed: list[int]) -> int:
    """Which of its core's usable hardware threads a processor is, from 0."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    if not siblings.is_file():
        return 0
    return [c for c in parse_cpu_list(siblings.read_text()) if c in allowed].index(cpu)
