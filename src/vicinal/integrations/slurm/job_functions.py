"""SR-IOV functions of Slurm's jobs on this host, which they ask for as GRES: srun --gres=vf:1.

Slurm counts functions, and says how many of which card a job has here. Which ones those are is in
the records of `vicinal functions`, where the owner is slurm-JOB. Beside the regions of jobs are

functions-JOB        variables for the job's tasks, once its functions are set up
functions-JOB.nodes  there before that where they are for the job's nodes (lent_functions.py)
functions-JOB.lock   there from before the first is set up until the last was taken back
.functions-JOB*.part  the first or the second while it is written

Whoever sets up or takes back holds the lock, and so does the privileged helper, which goes on to
the end of what it does when its command is killed.
"""

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.files import OWN_FILE, Durability, lock, write_atomically
from vicinal.host.functions.helper import kept_open
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import assigned_to
from vicinal.host.functions.privileged.system import VFIO, RefusedError
from vicinal.host.functions.settings import Settings
from vicinal.host.functions.sysfs import (
    ETHERNET,
    VirtualFunction,
    all_functions,
    find_card,
    find_function,
    read_records,
)
from vicinal.integrations.slurm.defaults import GRES
from vicinal.integrations.slurm.job_regions import own_directory
from vicinal.integrations.slurm.job_vlans import vlan_of
from vicinal.integrations.slurm.lent_functions import bounds, check_bounds, lent
from vicinal.integrations.slurm.machine_functions import check_for_machines, take_from_machines
from vicinal.integrations.slurm.queue import active_jobs, jobs_with
from vicinal.mpi.variables import FUNCTION_DEVICES, FUNCTION_INTERFACES, FUNCTIONS

_ASKED = re.compile(r"(?:^|,)([^:(),\s]+)(?::([^:(),\s]+))?(?::\d+)?\((CNT|IDX):([\d,-]*)\)")
_OWNER = re.compile(r"slurm-(\d{1,10})")
_NAME = re.compile(r"\.?functions-(\d{1,10})(?:\.lock|\.nodes)?(?:\.part)?")
_LOCK_SECONDS = 45.0
"""The plugin waits for a command for a minute."""
_ACTIVE_SECONDS = 40.0
"""In which the ports of all functions of a job are to be ACTIVE."""


@dataclass(frozen=True)
class Asked:
    """So many functions of a card."""

    count: int
    card: str | None = None
    """As gres.conf calls it by Type; None: of any."""


def parse_gres(words: str, name: str = GRES) -> list[Asked]:
    """What Slurm says that a job has of a GRES on a host, such as `vf:ib0(CNT:1),gpu:2(IDX:0-1)`.

    Raises VicinalError for other words.
    """
    found = [
        # Without a type the number may be in its place.
        Asked(_count(kind, number), None if card.isdigit() else card or None)
        for gres, card, kind, number in _ASKED.findall(words)
        if gres == name
    ]
    if not found:
        raise VicinalError(
            f"{words!r} names no GRES {name}", "use the plugin and the command of one version"
        )
    return found


def _count(kind: str, text: str) -> int:
    if kind == "CNT":
        return int(text)
    ends = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def owner_of(job: int) -> str:
    """The name by which the records know a job."""
    return f"slurm-{job}"


class JobFunctions:
    """The functions of jobs on this host, and what tells of them in a directory."""

    def __init__(self, directory: Path, functions: Functions | None = None) -> None:
        self._directory = directory
        self._functions = functions or Functions()

    def give(
        self,
        job: int,
        asked: Sequence[Asked],
        *,
        for_nodes: bool = False,
        vlans: range | None = None,
        gres: str = GRES,
    ) -> None:
        """Have a job's functions set up, unless they are; all of them or none.

        Where they are `for_nodes`, their interfaces stay down, and the card bounds what they can:
        to one of these VLANs, which no earlier job with that GRES has, or else to the one that
        each is in.
        Raises VicinalError where there are not enough, or one cannot be set up.
        """
        place = self._directory / f"functions-{job}"
        with self._locked(job):
            if place.exists():
                return
            try:
                vlan = self._vlan(job, vlans, gres) if for_nodes and vlans else None
                given = self._assign(owner_of(job), asked, for_nodes=for_nodes, vlan=vlan)
                told = lent(self._functions, given) if for_nodes else []
            except BaseException as error:
                with suppress(VicinalError):  # what this leaves the epilog takes back
                    self._take_back(owner_of(job))
                if isinstance(error, VicinalError):
                    raise _told(job, error) from error
                raise
            if for_nodes:
                lines = "".join(f"{each.line}\n" for each in told)
                nodes = place.with_name(f"{place.name}.nodes")
                write_atomically(nodes, lines, Durability.NONE, mode=0o644)
            write_atomically(place, _variables(given), Durability.NONE, mode=0o644)

    def lend(self, job: int, user: int) -> None:
        """Have those that a job has for its nodes on vfio-pci, where that user may open them.

        Raises VicinalError; what was done the epilog takes back.
        """
        with self._locked(job):
            try:
                for address in assigned_to(self._functions, owner_of(job)):
                    check_for_machines(self._functions, self._functions.find(address))
                    self._functions.lend(address, owner=owner_of(job), user=user)
            except VicinalError as error:
                raise _told(job, error) from error

    def release(self, job: int) -> list[str]:
        """Take back all that a job has; returns what could not be put back, in words.

        As often as one likes. What cannot be taken back stays the job's, with an error.
        """
        with self._locked(job):
            for path in self._files(job):
                if path.suffix != ".lock":
                    path.unlink(missing_ok=True)
            notes = self._take_back(owner_of(job))
            for path in self._files(job):
                path.unlink(missing_ok=True)
        return notes

    def sweep(self) -> tuple[list[int], list[str]]:
        """Take back what jobs have that Slurm no longer has: those, and what went wrong, in words.

        Raises VicinalError, and takes back nothing, where Slurm does not say which jobs there are.
        """
        jobs = self._recorded()
        with suppress(FileNotFoundError):
            names = (path.name for path in self._directory.iterdir())
            jobs |= {int(found[1]) for found in map(_NAME.fullmatch, names) if found}
        over = sorted(jobs - active_jobs()) if jobs else []
        done: list[int] = []
        notes: list[str] = []
        for job in over:
            try:
                notes += self.release(job)
                done.append(job)
            except VicinalError as error:  # of this job; those of others are not to wait for it
                notes.append(f"job {job}: {error}")
        return done, notes

    def _vlan(self, job: int, vlans: range, gres: str) -> int:
        """That of a job, which none has that began before it, or left functions here."""
        there = jobs_with(gres)
        earlier = there[: there.index(job)] if job in there else there
        return vlan_of(job, vlans, {*earlier, *self._recorded() - {*there}})

    def _recorded(self) -> set[int]:
        """The jobs that have functions of this host."""
        owners = (record["owner"] for record in self._records().values())
        return {int(found[1]) for found in map(_OWNER.fullmatch, owners) if found}

    def _records(self) -> dict[str, dict[str, str]]:
        return dict(read_records(self._functions.host)["functions"])

    def _files(self, job: int) -> list[Path]:
        """In any order."""
        return [
            path
            for path in self._directory.iterdir()
            if (found := _NAME.fullmatch(path.name)) and int(found[1]) == job
        ]

    def _assign(
        self, owner: str, asked: Sequence[Asked], *, for_nodes: bool, vlan: int | None
    ) -> list[VirtualFunction]:
        """Those that a killed command left to the job come first."""
        names = self._names(asked, list(self._own(owner)))
        settings = self._bounds(owner, vlan) if for_nodes else None
        given = self._functions.assign_all(
            [(name, settings) for name in names], owner=owner, wait=_ACTIVE_SECONDS
        )
        for function in given:
            if for_nodes:
                check_bounds(self._functions, function)
                continue
            for interface in function.interfaces:
                self._switch(interface, "up")
        return given

    def _bounds(self, owner: str, vlan: int | None) -> Callable[[VirtualFunction], Settings]:
        return lambda function: bounds(self._functions, owner, function, vlan)

    def _own(self, owner: str) -> Iterator[VirtualFunction]:
        """Functions that an owner has already, their interfaces down: as they are to be set up."""
        for function in all_functions(self._functions.cards()):
            if function.owner == owner:
                for interface in function.interfaces:
                    self._switch(interface, "down")
                yield function

    def _names(self, asked: Sequence[Asked], left: list[VirtualFunction]) -> list[str]:
        """The functions to assign, or for each that is a free one's the card which has that."""
        cards = self._functions.cards()
        free = Counter({card.address: sum(each.free for each in card.functions) for card in cards})
        names: list[str] = []
        for each in asked:
            of = cards if each.card is None else [find_card(cards, each.card)]
            if not of:
                raise VicinalError("no card here has functions", "see `vicinal functions list`")
            for _ in range(each.count):
                own = (one for one in left if any(one.physical == card.address for card in of))
                if function := next(own, None):
                    left.remove(function)
                    names.append(function.address)
                    continue
                # One without a free function is named too: assign_all() says who has them.
                card = next((card for card in of if free[card.address] > 0), of[0])
                free[card.address] -= 1
                names.append(each.card or card.address)
        return names

    def _take_back(self, owner: str) -> list[str]:
        """All that an owner has; raises the first error after all were tried."""
        back: list[str] = []
        errors: list[VicinalError] = []
        for address in assigned_to(self._functions, owner):
            function = find_function(self._functions.cards(), address)  # it may be gone
            try:
                if function is not None and function.driver == VFIO:
                    take_from_machines(self._functions, function)
                elif function is not None and self._is_away(function):
                    self._functions.recall(address, owner=owner)
                    function = None
                for interface in function.interfaces if function else ():
                    self._switch(interface, "down")
                back.append(address)
            except VicinalError as error:
                errors.append(error)
        notes: list[str] = []
        try:
            notes = self._functions.release(back, owner=owner) if back else []
        except VicinalError as error:
            errors.append(error)
        if errors:
            raise errors[0]
        return notes

    def _is_away(self, function: VirtualFunction) -> bool:
        """Whether its interface is in a network that is not this one, where it had been lent.

        Once it is here nobody but root takes it elsewhere. It comes by itself when the last network
        that it is in ends; but who is root in that may keep it for as long as he likes.
        """
        card = find_card(self._functions.cards(), function.physical)
        return card.kind == ETHERNET and bool(function.driver) and not function.interfaces

    def _switch(self, interface: str, state: str) -> None:
        try:
            self._functions.host.run("ip", "link", "set", "dev", interface, state)
        except RefusedError as error:
            raise VicinalError(*error.args) from error

    @contextmanager
    def _locked(self, job: int) -> Iterator[None]:
        own_directory(self._directory)
        file = self._directory / f"functions-{job}.lock"
        try:
            descriptor = lock(file, OWN_FILE | os.O_NOFOLLOW, seconds=_LOCK_SECONDS)
        except BlockingIOError:
            raise VicinalError(
                f"another command is at work on the SR-IOV functions of job {job}",
                "try again; if it hangs, see what `dmesg` says of the card",
            ) from None
        kept_open.add(descriptor)
        try:
            yield
        finally:
            kept_open.discard(descriptor)
            os.close(descriptor)


def _told(job: int, error: VicinalError) -> VicinalError:
    where = f"{socket.gethostname()}: the SR-IOV functions of job {job}"
    return VicinalError(f"{where}: {error.message}", error.remedy)


def _variables(given: Sequence[VirtualFunction]) -> str:
    found = {
        FUNCTIONS: [function.address for function in given],
        FUNCTION_INTERFACES: [name for function in given for name in function.interfaces],
        FUNCTION_DEVICES: [port.device for function in given for port in function.ports],
    }
    return "".join(f"{name}={','.join(dict.fromkeys(words))}\n" for name, words in found.items())
