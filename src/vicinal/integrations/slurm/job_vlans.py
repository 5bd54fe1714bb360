"""A VLAN for each job, which the card keeps the functions of its nodes to.

An administrator says from which numbers (`vicinal slurm install --vlans 1000-1999`). The hosts of a
job do not ask each other: the VLAN follows from the job's number, and a job ends that would have
the same one as another.
"""

import re
from collections.abc import Iterable

from vicinal.base.errors import VicinalError

_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_MOST = 4094


def parse_vlans(words: str) -> range:
    """FIRST-LAST as numbers. Raises VicinalError for what are none."""
    found = _RANGE.fullmatch(words)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= first <= last <= _MOST:
        raise VicinalError(
            f"{words!r} are no VLANs", f"write FIRST-LAST, of 1 to {_MOST}, such as 1000-1999"
        )
    return range(first, last + 1)


def vlan_of(job: int, vlans: range, others: Iterable[int]) -> int:
    """The VLAN of a job, on all of its hosts. Raises VicinalError where another job has it."""
    number = job % len(vlans)
    for other in sorted(others):
        if other != job and other % len(vlans) == number:
            raise VicinalError(
                f"job {other} has the VLAN {vlans[number]}, which would be job {job}'s, too: there "
                f"are {len(vlans)} for all jobs",
                "submit the job again, and it gets another; if that happens often, let an "
                "administrator name more (`vicinal slurm install --vlans`)",
            )
    return vlans[number]
