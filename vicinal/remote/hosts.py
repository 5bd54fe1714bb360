"""The hosts that a job runs on: from a list, from a file, and how many ranks go to each.

Hostfiles are read as MPICH and Open MPI write them: a host a line, `name`, `name:2` or
`name slots=2`; '#' begins a comment.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.errors import VicinalError, describe_os_error
from vicinal.mpi.placement import Placement, place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Never begins with a dash: ssh would take it for an option."""

_FORMS = "write NAME, NAME:RANKS or NAME slots=RANKS"
_MOST_BYTES = 1 << 20
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Host:
    """A host, and how many ranks it takes; None if that was left open."""

    name: str
    slots: int | None = None

    @property
    def is_this(self) -> bool:
        """Whether it is the one that we run on, as far as its name tells."""
        return self.name in ("localhost", socket.gethostname())


def parse_hosts(text: str) -> list[Host]:
    """The hosts of a list such as `a,b:2`; raises VicinalError where it is none."""
    return _unique([_host(part.strip(), "--hosts") for part in text.split(",")], "--hosts")


def read_hostfile(path: Path) -> list[Host]:
    """The hosts of a file; raises VicinalError where it cannot be read, or says something else."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise VicinalError(
            f"cannot read the hostfile {path}: {describe_os_error(error)}",
            "name a file with a host a line",
        ) from error
    if len(content) > _MOST_BYTES or b"\0" in content:
        raise VicinalError(f"{path} is no hostfile", "name a text file with a host a line")
    hosts = []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        said = line.partition("#")[0].strip()
        if said:
            hosts.append(_host(said, f"line {number} of {path}"))
    if not hosts:
        raise VicinalError(f"the hostfile {path} names no host", "write one a line into it")
    return _unique(hosts, str(path))


def spread(ranks: int, hosts: Sequence[Host]) -> list[Placement]:
    """Which host gets how many ranks: its slots, or as even shares as can be if none has any.

    Where some say how many and others do not, those take one. Raises VicinalError where there
    are not slots enough.
    """
    if all(host.slots is None for host in hosts):
        return place(ranks, [host.name for host in hosts])
    placements, left = [], ranks
    for host in hosts:
        count = min(left, 1 if host.slots is None else host.slots)
        left -= count
        if count:
            placements.append(Placement(host.name, count))
    if left:
        raise VicinalError(
            f"the hosts have slots for {ranks - left} ranks, and the job has {ranks}",
            "name more hosts, give them more slots, or lower -n",
        )
    return placements


def _host(text: str, place: str) -> Host:
    name, *options = text.split() or [""]
    name, colon, count = name.partition(":")
    for option in options:
        key, _, value = option.partition("=")
        if key == "slots" and not colon:
            colon, count = "=", value
        elif key not in ("max_slots", "max-slots"):
            raise VicinalError(f"{place} has {option!r}, which is not understood", _FORMS)
    if not _NAME.fullmatch(name):
        raise VicinalError(f"{place} has {text!r}, which names no host", _FORMS)
    if not colon:
        return Host(name)
    if not re.fullmatch(r"\d{1,7}", count) or not 0 < int(count) <= _MOST_RANKS:
        raise VicinalError(f"{place} has {count!r} ranks for {name}", "write a number from 1 on")
    return Host(name, int(count))


def _unique(hosts: list[Host], place: str) -> list[Host]:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise VicinalError(
                f"{place} names {name} twice", f"write it once, with its ranks: {name}:2"
            )
    return hosts
