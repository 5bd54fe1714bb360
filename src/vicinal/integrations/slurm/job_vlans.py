"""The VLAN of each job, to which the card binds the VFs of the job's nodes.

An administrator sets the numbers (`vicinal slurm install --vlans 1000-1999`). The hosts of a job do
not ask each other: the VLAN follows from the job's number. A job that would have the same VLAN as
another job ends with an error.
"""

import re
from collections.abc import Iterable

from vicinal.base.errors import VicinalError

_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})")
_MOST = 4094


def parse_vlans(words: str) -> range:
    """Parse FIRST-LAST. Raises VicinalError for anything else, and outside of 1 to 4094."""
    found = _RANGE.fullmatch(words)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= first <= last <= _MOST:
        raise VicinalError(
            f"{words!r} is not a range of VLANs",
            f"write FIRST-LAST, from 1 to {_MOST}, such as 1000-1999",
        )
    return range(first, last + 1)


def vlan_of(job: int, vlans: range, others: Iterable[int]) -> int:
    """The VLAN of a job, the same on all of its hosts. Raises VicinalError if another job has
    it.
    """
    number = job % len(vlans)
    for other in sorted(others):
        if other != job and other % len(vlans) == number:
            raise VicinalError(
                f"job {other} already has the VLAN {vlans[number]} of job {job}: there are "
                f"{len(vlans)} VLANs for all jobs",
                "submit the job again to get another VLAN; if this happens often, ask an "
                "administrator for more VLANs (`vicinal slurm install --vlans`)",
            )
    return vlans[number]
