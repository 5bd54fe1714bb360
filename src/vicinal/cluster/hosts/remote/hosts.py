"""The hosts that a job runs on: from a list, from a file, and how many ranks go to each.

Hostfiles are those of MPICH and Open MPI: a host a line, `name`, `name:2` or `name slots=2`, with
`user@` before the name where it is another's; `#` and `//` begin comments. A host that is named
several times, as PBS names it once for each slot, has the slots of all its lines. What such files
say of processors and binding does not go with a job here.
"""

import getpass
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.mpi.placement import Placement, place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Never begins with a dash: ssh would take it for an option."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

_SLOTS = {"slots", "count", "cpu", "cpus"}
"""Keys of how many ranks a host takes, as Open MPI's launchers name them."""

_LIMITS = {"max_slots", "max-slots", "slots_max", "slots-max", "max_count", "max-count"}
_LIMITS |= {"count_max", "count-max", "cpu_max", "cpu-max", "cpus_max", "cpus-max"}
"""Of how many ranks more a host takes: there are never more than it has slots."""

_USERS = {"user", "username", "user_name", "user-name"}

_WITHOUT_MEANING = {"binding", "bindto", "ifname", "port", "arch", "topo"}
_OF_PROCESSORS = re.compile(r"(num[_-])?(boards?|sockets?|cores?)([_-](per|of)[_-]\w+)?")
"""Keys of both that say what the MPI library does with a host's processors and interfaces."""

_COMMENT = re.compile(r"(#|//).*")

_FORMS = "write NAME, NAME:RANKS or NAME slots=RANKS"
_MOST_BYTES = 1 << 20
_MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Host:
    """A host, and how many ranks it takes; None if that was left open."""

    name: str
    """With `user@` before it where that was named."""
    slots: int | None = None

    @property
    def is_this(self) -> bool:
        """Whether it is the one that we run on, as far as its name tells."""
        user, _, name = self.name.rpartition("@")
        return name in ("localhost", socket.gethostname()) and user in ("", getpass.getuser())


def parse_hosts(text: str) -> list[Host]:
    """The hosts of a list such as `a,b:2`; raises VicinalError where it is none."""
    return _together([_host(part.strip(), "--hosts")[0] for part in text.split(",")], "--hosts")


def read_hostfile(path: Path, note: Callable[[str], None] = lambda _: None) -> list[Host]:
    """The hosts of a file; raises VicinalError where it cannot be read, or says something else.

    `note` is told, once, what is in the file and has no meaning here.
    """
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
    hosts, ignored = [], dict[str, None]()
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        said = _COMMENT.sub("", line).strip()
        if said:
            host, keys = _host(said, f"line {number} of {path}")
            hosts.append(host)
            ignored.update(dict.fromkeys(keys))
    if not hosts:
        raise VicinalError(f"the hostfile {path} names no host", "write one a line into it")
    if ignored:
        note(
            f"{', '.join(ignored)} in the hostfile {path} has no meaning here: the MPI library "
            "binds by variables of its own"
        )
    return _together(hosts, str(path))


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


def _host(text: str, place: str) -> tuple[Host, list[str]]:
    """What a line says of one host, and its keys that have no meaning here."""
    name, *options = re.sub(r"\s*=\s*", "=", text).split() or [""]
    user, at, name = name.rpartition("@")
    name, colon, count = name.partition(":")
    ignored = []
    for option in options:
        key, equals, value = option.partition("=")
        key = key.lower()
        if key in _SLOTS and not colon:
            colon, count = "=", value
        elif key in _USERS and equals and not at:
            user, at = value, "@"
        elif equals and (key in _WITHOUT_MEANING or _OF_PROCESSORS.fullmatch(key)):
            ignored.append(key)
        elif key not in _LIMITS:
            raise VicinalError(f"{place} has {option!r}, which is not understood", _FORMS)
    if not _NAME.fullmatch(name):
        raise VicinalError(f"{place} has {text!r}, which names no host", _FORMS)
    if at and not _USER.fullmatch(user):
        raise VicinalError(f"{place} has {text!r}, which names no user of {name}", _FORMS)
    named = f"{user}@{name}" if at else name
    if not colon:
        return Host(named), ignored
    if not re.fullmatch(r"\d{1,7}", count) or not 0 < int(count) <= _MOST_RANKS:
        raise VicinalError(f"{place} has {count!r} ranks for {named}", "write a number from 1 on")
    return Host(named, int(count)), ignored


def _together(lines: Sequence[Host], place: str) -> list[Host]:
    """Each host once. What is named several times has the slots of all, one where none are said."""
    hosts: dict[str, Host] = {}
    for line in lines:
        known = hosts.get(line.name)
        slots = line.slots
        if known is not None:
            slots = (known.slots or 1) + (slots or 1)
        hosts[line.name] = Host(line.name, slots)
    names: dict[str, str] = {}
    for host in hosts:
        _, _, name = host.rpartition("@")
        other = names.setdefault(name, host)
        if other != host:
            raise VicinalError(
                f"{place} has both {other} and {host}, and a job is one user's on each host",
                "name the user each time, or never",
            )
    return list(hosts.values())
