"""Which processors ranks are pinned to."""

import os
from pathlib import Path


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


def parse_cpu_list(text: str) -> list[int]:
    """The numbers in a list of the kernel's kind, such as "0-3,8"."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers
