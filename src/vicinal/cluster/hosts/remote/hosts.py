"""The hosts of a job, from a list, a hostfile or a Slurm allocation, and the ranks on each.

Hostfiles have the formats of MPICH and Open MPI: one host a line, as `name`, `name:2` or
`name slots=2`, with `user@` before the name for another user; `#` and `//` begin comments. A host
on several lines, as in PBS's files with a line for each slot, has the slots of all its lines.
Settings of processors and binding in such files are ignored.
"""

import getpass
import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.mpi.placement import Placement, place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A name does not begin with a dash, because ssh would read it as an option."""

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")

_SLOTS = {"slots", "count", "cpu", "cpus"}
"""Keys of the number of ranks on a host in Open MPI's hostfiles."""

_LIMITS = {"max_slots", "max-slots", "slots_max", "slots-max", "max_count", "max-count"}
_LIMITS |= {"count_max", "count-max", "cpu_max", "cpu-max", "cpus_max", "cpus-max"}
"""Keys of additional ranks on a host, which are ignored: a host never gets more than its slots."""

_USERS = {"user", "username", "user_name", "user-name"}

_WITHOUT_MEANING = {"binding", "bindto", "ifname", "port", "arch", "topo"}
_OF_PROCESSORS = re.compile(r"(num[_-])?(boards?|sockets?|cores?)([_-](per|of)[_-]\w+)?")
"""Keys of both MPI libraries for a host's processors and interfaces, which are ignored."""

_COMMENT = re.compile(r"(#|//).*")

_FORMS = "write NAME, NAME:RANKS or NAME slots=RANKS"
_MOST_BYTES = 1 << 20
_MOST_RANKS = 1 << 20
_ANSWER_SECONDS = 30.0
_COUNT = re.compile(r"(\d{1,7})(?:\(x(\d{1,7})\))?")
_MOST_HOSTS = 1 << 16


@dataclass(frozen=True)
class Host:
    """A host of a job."""

    name: str
    """The host's name, with `user@` before it if the user is set."""
    slots: int | None = None
    """Number of ranks that the host takes; None if it is not set."""

    @property
    def is_this(self) -> bool:
        """Whether the host is this host, according to its name and user."""
        user, _, name = self.name.rpartition("@")
        return name in ("localhost", socket.gethostname()) and user in ("", getpass.getuser())


def parse_hosts(text: str) -> list[Host]:
    """Parse a list of hosts such as `a,b:2`. Raises VicinalError if the list is malformed."""
    return _merge_hosts([_host(part.strip(), "--hosts")[0] for part in text.split(",")], "--hosts")


def read_hostfile(path: Path, note: Callable[[str], None] = lambda _: None) -> list[Host]:
    """Read a hostfile. Raises VicinalError if the file cannot be read or is malformed.

    `note` gets at most one message, which names the ignored keys.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise VicinalError(
            f"cannot read the hostfile {path}: {describe_os_error(error)}",
            "name a file with one host a line",
        ) from error
    if len(content) > _MOST_BYTES or b"\0" in content:
        raise VicinalError(f"{path} is not a hostfile", "name a text file with one host a line")
    hosts, ignored = [], dict[str, None]()
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        said = _COMMENT.sub("", line).strip()
        if said:
            host, keys = _host(said, f"line {number} of {path}")
            hosts.append(host)
            ignored.update(dict.fromkeys(keys))
    if not hosts:
        raise VicinalError(f"the hostfile {path} names no host", "write one host a line into it")
    if ignored:
        note(
            f"{', '.join(ignored)} in the hostfile {path} has no effect: set the MPI library's own "
            "variables for binding"
        )
    return _merge_hosts(hosts, str(path))


def spread(ranks: int, hosts: Sequence[Host]) -> list[Placement]:
    """Return the number of ranks for each host: its slots, or even shares if no host has slots.

    If only some hosts have slots, each other host has one. Raises VicinalError if the hosts have
    fewer slots than the job has ranks.
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
            "name more hosts, give them more slots, or reduce -n",
        )
    return placements


def _host(text: str, source: str) -> tuple[Host, list[str]]:
    """Parse one host of a list or line; return the host and the ignored keys."""
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
            raise VicinalError(f"{source} has the unknown option {option!r}", _FORMS)
    if not _NAME.fullmatch(name):
        raise VicinalError(f"{source} has {text!r}, which is not a host's name", _FORMS)
    if at and not _USER.fullmatch(user):
        raise VicinalError(f"{source} has {text!r}, which does not name a user of {name}", _FORMS)
    named = f"{user}@{name}" if at else name
    if not colon:
        return Host(named), ignored
    if not re.fullmatch(r"\d{1,7}", count) or not 0 < int(count) <= _MOST_RANKS:
        raise VicinalError(
            f"{source} has {count!r} ranks for {named}", "write a number of at least 1"
        )
    return Host(named, int(count)), ignored


def _merge_hosts(lines: Sequence[Host], source: str) -> list[Host]:
    """Merge lines of the same host, which has the slots of all its lines, one for each without."""
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
                f"{source} has both {other} and {host}, and a job has one user on each host",
                "name the same user on each line of a host, or none",
            )
    return list(hosts.values())


def allocation(variables: Mapping[str, str] = os.environ) -> list[Host]:
    """The hosts of the allocation, in Slurm's order.

    Each host gets as many ranks as Slurm was asked for tasks there. If no number of tasks was
    given, each host gets as many ranks as it has processors in the allocation. Raises VicinalError
    outside of an allocation.
    """
    listed = variables.get("SLURM_JOB_NODELIST")
    if not listed:
        raise VicinalError(
            "no Slurm allocation was found: SLURM_JOB_NODELIST is not set",
            "start the command from salloc or sbatch, or name hosts that ssh reaches with --hosts",
        )
    names = _expanded(listed)
    counts = "SLURM_TASKS_PER_NODE" if "SLURM_NTASKS" in variables else "SLURM_JOB_CPUS_PER_NODE"
    slots = _counts(variables.get(counts, ""))
    if len(slots) != len(names):
        raise VicinalError(
            f"the allocation has {len(names)} hosts, but {counts} is {variables.get(counts, '')!r}",
            "start the command from salloc or sbatch, not from a step or with variables of "
            "another job",
        )
    hosts = parse_hosts(",".join(names))
    return [Host(host.name, count) for host, count in zip(hosts, slots, strict=True)]


def _expanded(listed: str) -> list[str]:
    """The host names in a list such as `node[0-3,7]`."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", listed],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise VicinalError(
            "scontrol was not found", "add the directory of Slurm's commands to PATH"
        ) from error
    except (subprocess.SubprocessError, OSError) as error:
        raise VicinalError(
            f"scontrol does not expand the list of hosts {listed}",
            "run `scontrol show hostnames` to see why",
        ) from error
    return done.stdout.split()


def _counts(text: str) -> list[int]:
    """A number for each host, from a list such as `2(x3),1`; empty if the text is no such list."""
    found: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None or len(found) + int(match[2] or 1) > _MOST_HOSTS:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found
