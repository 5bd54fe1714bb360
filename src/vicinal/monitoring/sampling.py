"""Samples of the jobs on this host: what their regions say at one moment, and rates between two.

Members wrote everything here, so a figure may be wrong or absurd. Text is safe for a terminal.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.printable import printable
from vicinal.integrations.slurm.defaults import DEFAULT_REGIONS
from vicinal.launch.paths import running_regions
from vicinal.mpi.traffic import JobTraffic, PairTraffic, job_traffic
from vicinal.region import Beyond, Connection, Member, RegionState, inspect
from vicinal.region import geometry as layout
from vicinal.region.commands import PATIENCE
from vicinal.region.opening import is_socket, socket_of
from vicinal.region.states import Liveness, Route, SlotState

_SHARED = Path("/dev/shm")
_WELL_KNOWN = (Path("/run/vicinal/region"), _SHARED / "vicinal-region")

_Beats = dict[tuple[str, int, int], tuple[int, float, bool]]
"""By region, slot and epoch: the last heartbeat, since when, and whether it ever changed."""

_SLURM_REGION = re.compile(r"job-\d{1,10}")


@dataclass(frozen=True)
class Counts:
    """What a job has done so far, summed over its members."""

    messages: int = 0
    """Messages to members of the region, through the region or over the network."""
    message_bytes: int = 0
    outside_messages: int = 0
    """Messages over the network to peers outside the region."""
    outside_bytes: int = 0
    collectives: int = 0
    """Collectives without messages, counted by each member."""
    collective_bytes: int = 0
    one_sided: int = 0
    """Operations on windows without messages."""
    one_sided_bytes: int = 0


@dataclass(frozen=True)
class Rates:
    """Counts a second. A count that became smaller, because a member left, has the rate 0."""

    messages: float = 0.0
    message_bytes: float = 0.0
    outside_messages: float = 0.0
    outside_bytes: float = 0.0
    collectives: float = 0.0
    collective_bytes: float = 0.0
    one_sided: float = 0.0
    one_sided_bytes: float = 0.0


@dataclass(frozen=True)
class Fault:
    """A fault of a job, as its region shows it."""

    kind: str
    """dead: a member ended without leaving; violation: a member broke the region's protocol;
    ended: a pair found the region unusable and goes on over the network."""
    text: str


@dataclass(frozen=True)
class RegionSample:
    """A region at one moment; sizes are in bytes."""

    path: str
    id: str
    label: str
    owner: int
    slots: int
    free_slots: int
    """Slots that a new member can take, those of dead members included."""
    region_bytes: int
    reserved_bytes: int
    heap_bytes: int
    """Bytes of all heaps."""
    heap_reserved_bytes: int
    """Bytes of the heaps that have memory now: all bytes, unless the heaps are sparse."""


@dataclass(frozen=True)
class JobSample:
    """A job in one region at one moment."""

    region: RegionSample
    job: int
    """Number of the job; 0 if unknown."""
    members: tuple[Member, ...]
    """The job's members, those that left included while their sections stay readable."""
    traffic: JobTraffic
    counts: Counts
    faults: tuple[Fault, ...]
    arena_bytes: int
    """Bytes of the arenas of the members that are there."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What names the job in the next sample."""
        return self.region.path, self.region.id, self.job

    @property
    def name(self) -> str:
        """The program's or the cluster's name."""
        return self.region.label or Path(self.region.path).name

    @property
    def present(self) -> tuple[Member, ...]:
        """The members that have not left."""
        return tuple(each for each in self.members if each.condition != "left")

    @property
    def ranks(self) -> int:
        """Number of ranks that have not left; a member without a rank counts as one."""
        return len({_rank(member) for member in self.present})

    @property
    def asleep(self) -> int:
        """Number of ranks all of whose members may sleep until a peer wakes them."""
        awake = {_rank(member) for member in self.present if member.sleeping == 0}
        return self.ranks - len(awake)

    @property
    def arena_used(self) -> int:
        """Used bytes of the arenas."""
        return sum(min(each.arena_used, self.arena_bytes) for each in self.present)


def _rank(member: Member) -> tuple[int | None, int | None]:
    return member.rank, member.slot if member.rank is None else None


@dataclass(frozen=True)
class Sample:
    """All jobs and regions at one moment."""

    monotonic: float
    """Seconds on the monotonic clock when reading began."""
    jobs: tuple[JobSample, ...]
    regions: tuple[RegionSample, ...]
    unreadable: tuple[str, ...]
    """For each region that could not be read, why, with a remedy."""
    seconds: float = 0.0
    """Time that reading took."""


@dataclass(frozen=True)
class Change:
    """What happened between two samples."""

    seconds: float
    jobs: Mapping[tuple[str, str, int], Rates] = field(default_factory=dict)
    """Of jobs that are in both samples."""
    pairs: Mapping[tuple[str, str, int], Mapping[tuple[int, int, str], tuple[float, float]]] = (
        field(default_factory=dict)
    )
    """Messages and bytes a second from one rank to another, by their current path."""


class Sampler:
    """Takes samples; remembers heartbeats from one to the next."""

    def __init__(self, find: Callable[[], Iterable[Path]], *, strict: bool = False) -> None:
        """`find` names the regions. With `strict`, an unreadable region of the first sample is an
        error."""
        self._find = find
        self._strict = strict
        self._beats: _Beats = {}

    def take(self, *, patience: float = 0.0) -> Sample:
        """Read all regions.

        With `patience` it waits so many seconds for heartbeats of members in virtual machines, as
        inspect() does. Without, a member's life shows only when it is read again later.
        """
        began = time.monotonic()
        states: list[RegionState] = []
        unreadable: list[str] = []
        beats: _Beats = {}
        for path in _once_each(self._find()):
            try:
                states.append(inspect(path, patience=patience))
            except (VicinalError, OSError) as error:
                if self._strict:
                    raise
                if _file(path).exists():  # otherwise the job has just ended
                    unreadable.append(_reason(path, error))
        self._strict = False
        jobs: list[JobSample] = []
        regions: list[RegionSample] = []
        for state in states:
            state = self._with_life(state, began, beats)
            region = _region(state)
            regions.append(region)
            jobs.extend(_jobs(state, region))
        self._beats = beats
        return Sample(
            began, tuple(jobs), tuple(regions), tuple(unreadable), time.monotonic() - began
        )

    def _with_life(
        self,
        state: RegionState,
        now: float,
        beats: _Beats,
    ) -> RegionState:
        """Return the state with the life of members whose only sign is the heartbeat."""
        members = []
        for member in state.members:
            if member.alive is None and _beats(member):
                key = state.header.id, member.slot, member.epoch
                before, since, seen = self._beats.get(key, (member.heartbeat, now, False))
                if member.heartbeat != before:
                    since, seen = now, True
                beats[key] = member.heartbeat, since, seen
                if now - since >= PATIENCE:
                    alive = None if member.state is SlotState.HELD else False
                    member = replace(member, alive=alive)
                elif seen:
                    member = replace(member, alive=True)
            members.append(member)
        return replace(state, members=tuple(members))


def _beats(member: Member) -> bool:
    there = member.state in (SlotState.JOINED, SlotState.HELD)
    return there and member.liveness == Liveness.HEARTBEAT


def _reason(path: Path, error: VicinalError | OSError) -> str:
    if isinstance(error, VicinalError):
        return printable(str(error))
    return printable(f"cannot read region {path}: {describe_os_error(error)}: check the file")


def _file(region: Path) -> Path:
    """The region's file, or the socket of its broker."""
    return Path(socket_of(region) or region)


def _once_each(paths: Iterable[Path]) -> Iterator[Path]:
    """Each file once, although it may have several paths."""
    known = set()
    for path in paths:
        with suppress(OSError):
            status = _file(path).stat()
            if (file := (status.st_dev, status.st_ino)) in known:
                continue
            known.add(file)
        yield path


def host_regions() -> list[Path]:
    """The regions on this host of this user's jobs and clusters, of Slurm's jobs, and at the
    provider's default paths; for root those of all users.

    Regions that this user cannot see are missing.
    """
    everyone = os.geteuid() == 0
    found = [path for job in running_regions(of_all_users=everyone) for path in job]
    found.extend(_SHARED.glob(f"vicinal-{'[0-9]*' if everyone else os.geteuid()}-*"))
    with suppress(OSError):
        names = DEFAULT_REGIONS.iterdir() if DEFAULT_REGIONS.is_dir() else ()
        found.extend(
            path
            for path in names
            if _SLURM_REGION.fullmatch(path.name) and os.access(path, os.R_OK)  # not of others
        )
    found.extend(_WELL_KNOWN)
    return sorted(path for path in set(found) if _may_be_region(path))


def _may_be_region(path: Path) -> bool:
    """Whether this is a file, or a broker's socket; what this user may not look at may be a region.

    Any user may create names in /dev/shm, so no link is followed.
    """
    broker = socket_of(path)
    if broker is not None:
        return is_socket(broker)
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:
        return True


def _region(state: RegionState) -> RegionSample:
    header = state.header
    heaps = header.heap_bytes * header.members
    taken = sum(member.condition not in ("left", "dead") for member in state.members)
    reserved = heaps
    if header.sparse_heaps:
        reserved = min(heaps, max(0, state.reserved_bytes - header.first_bytes))
    return RegionSample(
        path=printable(state.path),
        id=header.id,
        label=header.label,
        owner=state.owner,
        slots=header.members,
        free_slots=header.members - taken,
        region_bytes=header.region_bytes,
        reserved_bytes=state.reserved_bytes,
        heap_bytes=heaps,
        heap_reserved_bytes=reserved,
    )


def _jobs(state: RegionState, region: RegionSample) -> Iterator[JobSample]:
    """The jobs of which a member has not left."""
    header = state.header
    arena = header.section_bytes - header.heap_bytes - layout.arena_offset(header.members)
    for number, part in _by_job(state):
        present = sum(member.condition != "left" for member in part.members)
        if present:
            yield JobSample(
                region,
                number,
                part.members,
                job_traffic(part),
                _counts(part),
                tuple(_faults(part)),
                arena * present,
            )


def _by_job(state: RegionState) -> Iterator[tuple[int, RegionState]]:
    """The state by number of the job, as of_job() divides it.

    In one pass, because a hostile member can write as many numbers as there are members.
    """
    job_of = {member.slot: member.job for member in state.members}
    members: dict[int, list[Member]] = defaultdict(list)
    connections: dict[int, list[Connection]] = defaultdict(list)
    beyond: dict[int, list[Beyond]] = defaultdict(list)
    for member in state.members:
        members[member.job].append(member)
    for connection in state.connections:
        connections[job_of[connection.sender]].append(connection)
    for sent in state.beyond:
        beyond[job_of[sent.sender]].append(sent)
    for number in sorted(members):
        yield (
            number,
            replace(
                state,
                members=tuple(members[number]),
                connections=tuple(connections[number]),
                beyond=tuple(beyond[number]),
            ),
        )


def _counts(state: RegionState) -> Counts:
    direct = [member.direct for member in state.members]
    return Counts(
        messages=sum(each.messages for each in state.connections),
        message_bytes=sum(each.bytes for each in state.connections),
        outside_messages=sum(each.messages for each in state.beyond),
        outside_bytes=sum(each.bytes for each in state.beyond),
        collectives=sum(each.collectives for each in direct),
        collective_bytes=sum(each.collective_bytes for each in direct),
        one_sided=sum(each.one_sided for each in direct),
        one_sided_bytes=sum(each.one_sided_bytes for each in direct),
    )


def _faults(state: RegionState) -> Iterator[Fault]:
    for member in state.members:
        if member.condition == "dead":
            where = f"pid {member.pid} on {member.hostname or 'an unnamed host'}"
            yield Fault("dead", f"{_who(state, member.slot)} is dead ({where})")
    for each in state.connections:
        receiver = state.member(each.receiver)
        if each.ended and receiver is not None and each.ended == receiver.epoch:
            who, whom = _who(state, each.sender), _who(state, each.receiver)
            yield Fault("violation", f"{who} found that {whom} broke the region's protocol")
        elif each.route is Route.ENDED:
            who, whom = _who(state, each.sender), _who(state, each.receiver)
            yield Fault("ended", f"{who} reaches {whom} no more through the region")


def _who(state: RegionState, slot: int) -> str:
    member = state.member(slot)
    return f"slot {slot}" if member is None or member.rank is None else f"rank {member.rank}"


def change_between(before: Sample, now: Sample) -> Change:
    """Return the rates of the jobs that are in both samples."""
    seconds = now.monotonic - before.monotonic
    earlier = {job.key: job for job in before.jobs}
    both = [(earlier[job.key], job) for job in now.jobs if job.key in earlier]
    return Change(
        seconds,
        {job.key: _rates(old.counts, job.counts, seconds) for old, job in both},
        {job.key: _pair_rates(old.traffic.pairs, job.traffic.pairs, seconds) for old, job in both},
    )


def _rates(before: Counts, now: Counts, seconds: float) -> Rates:
    names = [each.name for each in fields(Counts)]
    values = zip(names, astuple(before), astuple(now), strict=True)
    return Rates(**{name: _rate(old, new, seconds) for name, old, new in values})


def _rate(before: int, now: int, seconds: float) -> float:
    return max(0, now - before) / seconds if seconds > 0 else 0.0


def _pair_rates(
    before: Sequence[PairTraffic], now: Sequence[PairTraffic], seconds: float
) -> dict[tuple[int, int, str], tuple[float, float]]:
    """The rates of pairs, each under its current path, whatever the path was before."""
    old: dict[tuple[int, int], tuple[int, int]] = {}
    for pair in before:
        messages, count = old.get((pair.sender, pair.receiver), (0, 0))
        old[pair.sender, pair.receiver] = messages + pair.messages, count + pair.bytes
    return {
        (pair.sender, pair.receiver, pair.path): (
            _rate(old.get((pair.sender, pair.receiver), (0, 0))[0], pair.messages, seconds),
            _rate(old.get((pair.sender, pair.receiver), (0, 0))[1], pair.bytes, seconds),
        )
        for pair in now
    }
