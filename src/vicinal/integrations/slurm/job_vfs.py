"""SR-IOV VFs of Slurm's jobs on this host, requested as GRES: srun --gres=vf:1.

Slurm counts VFs, and reports how many VFs of which card a job has here. The records of
`vicinal vf` say which VFs these are; their owner is slurm-JOB. Files beside the
regions of jobs:

vfs-JOB        variables for the job's tasks, after its VFs are configured
vfs-JOB.nodes  written before that if the VFs are for nodes (granted_vfs.py)
vfs-JOB.lock   exists from the first configured VF to the last released VF
.vfs-JOB*.part  one of the first two files while it is written

A process that configures or releases VFs holds the lock. So does the privileged program,
which finishes its work if the command that started it is killed.

The card binds VFs that a job's virtual machines have by VFIO as it binds those of containers
(granted_vfs.py). When the supervisor asks, root binds the VFs to vfio-pci. From then on the job's
user owns the files of their groups in /dev/vfio, until root revokes the grant.
"""

import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.base.files import OWN_FILE, Durability, lock, write_atomically
from vicinal.host.vf.helper import kept_open
from vicinal.host.vf.operations import Vfs, vfio_node
from vicinal.host.vf.owners import assigned_to
from vicinal.host.vf.privileged.system import VFIO, RefusedError
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    ETHERNET,
    VirtualFunction,
    all_vfs,
    find_card,
    find_vf,
    holding,
    read_records,
)
from vicinal.integrations.slurm.defaults import GRES
from vicinal.integrations.slurm.granted_vfs import bounds, check_bounds, granted
from vicinal.integrations.slurm.job_regions import own_directory
from vicinal.integrations.slurm.job_vlans import vlan_of
from vicinal.integrations.slurm.queue import active_jobs, jobs_with
from vicinal.mpi.variables import VF_DEVICES, VF_INTERFACES, VFS

_ASKED = re.compile(r"(?:^|,)([^:(),\s]+)(?::([^:(),\s]+))?(?::\d+)?\((CNT|IDX):([\d,-]*)\)")
_OWNER = re.compile(r"slurm-(\d{1,10})")
_NAME = re.compile(r"\.?vfs-(\d{1,10})(?:\.lock|\.nodes)?(?:\.part)?")
_LOCK_SECONDS = 45.0
"""The plugin waits one minute for a command."""
_ACTIVE_SECONDS = 40.0
"""How long the ports of all VFs of a job may take to become ACTIVE."""
_CLOSE_SECONDS, _POLL_SECONDS = 10.0, 0.05


@dataclass(frozen=True)
class Asked:
    """A request for a number of VFs of a card."""

    count: int
    card: str | None = None
    """The card's Type in gres.conf; None: any card."""


def parse_gres(words: str, name: str = GRES) -> list[Asked]:
    """The VFs that a job has of a GRES, from Slurm's text such as
    `vf:ib0(CNT:1),gpu:2(IDX:0-1)`.

    Raises VicinalError if the text does not contain the GRES.
    """
    found = [
        # Without a type, the number may be in the type's field.
        Asked(_count(kind, number), None if card.isdigit() else card or None)
        for gres, card, kind, number in _ASKED.findall(words)
        if gres == name
    ]
    if not found:
        raise VicinalError(
            f"{words!r} names no GRES {name!r}",
            "use the plugin and the command of the same version",
        )
    return found


def _count(kind: str, text: str) -> int:
    if kind == "CNT":
        return int(text)
    ends = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def owner_of(job: int) -> str:
    """The owner in the records for a job's VFs."""
    return f"slurm-{job}"


class JobVfs:
    """The VFs of jobs on this host, and the files about them in a directory."""

    def __init__(self, directory: Path, vfs: Vfs | None = None) -> None:
        self._directory = directory
        self._vfs = vfs or Vfs()

    def give(
        self,
        job: int,
        asked: Sequence[Asked],
        *,
        for_nodes: bool = False,
        vlans: range | None = None,
        gres: str = GRES,
    ) -> None:
        """Configure a job's VFs, if they are not configured yet: all of them or none.

        With `for_nodes`, the interfaces stay down, and the card binds each VF to a VLAN: to
        one of `vlans` that no earlier job with the GRES has, or to the VF's present VLAN.
        Raises VicinalError if there are not enough VFs, or one cannot be configured.
        """
        file = self._directory / f"vfs-{job}"
        with self._locked(job):
            if file.exists():
                return
            try:
                vlan = self._vlan(job, vlans, gres) if for_nodes and vlans else None
                given = self._assign(owner_of(job), asked, for_nodes=for_nodes, vlan=vlan)
                told = granted(self._vfs, given) if for_nodes else []
            except BaseException as error:
                with suppress(VicinalError):  # the epilog releases what is left
                    self._release_all(owner_of(job))
                if isinstance(error, VicinalError):
                    raise _told(job, error) from error
                raise
            if for_nodes:
                lines = "".join(f"{each.line}\n" for each in told)
                nodes = file.with_name(f"{file.name}.nodes")
                write_atomically(nodes, lines, Durability.NONE, mode=0o644)
            write_atomically(file, _variables(given), Durability.NONE, mode=0o644)

    def grant(self, job: int, user: int) -> None:
        """Bind the job's VFs for nodes to vfio-pci, and let the user open them.

        Raises VicinalError; the epilog then releases the VFs.
        """
        with self._locked(job):
            try:
                for address in assigned_to(self._vfs, owner_of(job)):
                    check_for_vms(self._vfs, self._vfs.find(address))
                    self._vfs.grant(address, owner=owner_of(job), user=user)
            except VicinalError as error:
                raise _told(job, error) from error

    def release(self, job: int) -> list[str]:
        """Release all VFs of a job; returns the settings that could not be restored, as
        texts.

        Can be repeated. A VF that cannot be released stays the job's, and VicinalError is
        raised.
        """
        with self._locked(job):
            for path in self._files(job):
                if path.suffix != ".lock":
                    path.unlink(missing_ok=True)
            notes = self._release_all(owner_of(job))
            for path in self._files(job):
                path.unlink(missing_ok=True)
        return notes

    def sweep(self) -> tuple[list[int], list[str]]:
        """Release the VFs of jobs that Slurm no longer has; returns these jobs, and the
        failures.

        Raises VicinalError, and releases nothing, if Slurm does not list its jobs.
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
            except VicinalError as error:  # the failure of one job does not keep back the others
                notes.append(f"job {job}: {error}")
        return done, notes

    def _vlan(self, job: int, vlans: range, gres: str) -> int:
        """The VLAN of a job. Raises VicinalError if an earlier job, or one with VFs here, has
        it.
        """
        there = jobs_with(gres)
        earlier = there[: there.index(job)] if job in there else there
        return vlan_of(job, vlans, {*earlier, *self._recorded() - {*there}})

    def _recorded(self) -> set[int]:
        """The jobs that have VFs of this host in the records."""
        owners = (record["owner"] for record in self._records().values())
        return {int(found[1]) for found in map(_OWNER.fullmatch, owners) if found}

    def _records(self) -> dict[str, dict[str, str]]:
        return dict(read_records(self._vfs.host)["vfs"])

    def _files(self, job: int) -> list[Path]:
        """The files of a job, in any order."""
        return [
            path
            for path in self._directory.iterdir()
            if (found := _NAME.fullmatch(path.name)) and int(found[1]) == job
        ]

    def _assign(
        self, owner: str, asked: Sequence[Asked], *, for_nodes: bool, vlan: int | None
    ) -> list[VirtualFunction]:
        """Assign VFs; VFs that a killed command left to the job come first."""
        names = self._names(asked, list(self._own(owner)))
        settings = self._bounds(owner, vlan) if for_nodes else None
        given = self._vfs.assign_all(
            [(name, settings) for name in names], owner=owner, wait=_ACTIVE_SECONDS
        )
        for vf in given:
            if for_nodes:
                check_bounds(self._vfs, vf)
                continue
            for interface in vf.interfaces:
                self._switch(interface, "up")
        return given

    def _bounds(self, owner: str, vlan: int | None) -> Callable[[VirtualFunction], Settings]:
        return lambda vf: bounds(self._vfs, owner, vf, vlan)

    def _own(self, owner: str) -> Iterator[VirtualFunction]:
        """The VFs that the owner already has, with their interfaces set down for a new
        configuration.
        """
        for vf in all_vfs(self._vfs.cards()):
            if vf.owner == owner:
                for interface in vf.interfaces:
                    self._switch(interface, "down")
                yield vf

    def _names(self, asked: Sequence[Asked], left: list[VirtualFunction]) -> list[str]:
        """The names for assign_all(): the address of an own VF, or the card of a free
        VF.
        """
        cards = self._vfs.cards()
        free = Counter({card.address: sum(each.free for each in card.vfs) for card in cards})
        names: list[str] = []
        for each in asked:
            of = cards if each.card is None else [find_card(cards, each.card)]
            if not of:
                raise VicinalError("no card of this host has VFs", "see `vicinal vf list`")
            for _ in range(each.count):
                own = (one for one in left if any(one.physical == card.address for card in of))
                if vf := next(own, None):
                    left.remove(vf)
                    names.append(vf.address)
                    continue
                # A card without a free VF is named too: assign_all() reports who has its
                # VFs.
                card = next((card for card in of if free[card.address] > 0), of[0])
                free[card.address] -= 1
                names.append(each.card or card.address)
        return names

    def _release_all(self, owner: str) -> list[str]:
        """Release all VFs of an owner; raises the first error after it has tried all
        VFs.
        """
        back: list[str] = []
        errors: list[VicinalError] = []
        for address in assigned_to(self._vfs, owner):
            # the VF may no longer exist
            vf = find_vf(self._vfs.cards(), address)
            try:
                if vf is not None and vf.driver == VFIO:
                    revoke_from_vms(self._vfs, vf)
                elif vf is not None and self._is_away(vf):
                    self._vfs.recall(address, owner=owner)
                    vf = None
                for interface in vf.interfaces if vf else ():
                    self._switch(interface, "down")
                back.append(address)
            except VicinalError as error:
                errors.append(error)
        notes: list[str] = []
        try:
            notes = self._vfs.release(back, owner=owner) if back else []
        except VicinalError as error:
            errors.append(error)
        if errors:
            raise errors[0]
        return notes

    def _is_away(self, vf: VirtualFunction) -> bool:
        """Whether a granted interface is still in another network namespace.

        In this namespace only root can move it. When the last namespace that has the interface
        ends, the interface returns by itself; but the root user of that namespace can keep it as
        long as they like.
        """
        card = find_card(self._vfs.cards(), vf.physical)
        return card.kind == ETHERNET and bool(vf.driver) and not vf.interfaces

    def _switch(self, interface: str, state: str) -> None:
        try:
            self._vfs.host.run("ip", "link", "set", "dev", interface, state)
        except RefusedError as error:
            raise VicinalError(*error.args) from error

    @contextmanager
    def _locked(self, job: int) -> Iterator[None]:
        own_directory(self._directory)
        file = self._directory / f"vfs-{job}.lock"
        try:
            descriptor = lock(file, OWN_FILE | os.O_NOFOLLOW, seconds=_LOCK_SECONDS)
        except BlockingIOError:
            raise VicinalError(
                f"another command is changing the SR-IOV VFs of job {job}",
                "try again; if that command hangs, see `dmesg` for the card",
            ) from None
        kept_open.add(descriptor)
        try:
            yield
        finally:
            kept_open.discard(descriptor)
            os.close(descriptor)


def _told(job: int, error: VicinalError) -> VicinalError:
    where = f"{socket.gethostname()}: the SR-IOV VFs of job {job}"
    return VicinalError(f"{where}: {error.message}", error.remedy)


def _variables(given: Sequence[VirtualFunction]) -> str:
    found = {
        VFS: [vf.address for vf in given],
        VF_INTERFACES: [name for vf in given for name in vf.interfaces],
        VF_DEVICES: [port.device for vf in given for port in vf.ports],
    }
    return "".join(f"{name}={','.join(dict.fromkeys(words))}\n" for name, words in found.items())


def check_for_vms(vfs: Vfs, vf: VirtualFunction) -> None:
    """Raise VicinalError for a VF that a job's virtual machines cannot have."""
    card = find_card(vfs.cards(), vf.physical)
    if card.kind != ETHERNET:
        raise VicinalError(
            f"{vf.address} of {card.address} is an InfiniBand VF, and a job's virtual "
            "machines can have only Ethernet VFs",
            "use containers, or a VF of another card",
        )


def revoke_from_vms(vfs: Vfs, vf: VirtualFunction) -> None:
    """Close a VFIO group to the job's user, and end the user's processes that have it open.

    The user can open the group in any process, and pass the descriptor to other processes. On older
    kernels, a process that holds a group open could also reach the device of its next user. Raises
    VicinalError if a process keeps the group open for 10 s.
    """
    user = read_records(vfs.host)["vfs"][vf.address].get("granted_to")
    node = vfio_node(vf, vfs.host)
    until = time.monotonic() + _CLOSE_SECONDS
    while node.exists():
        vfs.host.give(node, 0)
        for process in holding(vfs.host, vf.address):
            _end(process, user)
        try:
            os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))  # a group can be opened only once
        except OSError as error:
            if time.monotonic() > until:
                raise VicinalError(
                    f"a process still holds {vf.address} open through {node} ({error.strerror})",
                    "end the processes of the job's user; the next epilog releases the VF",
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            return


def _end(process: Path, user: int | None) -> None:
    """Kill a process if all its user ids are the user's: the user may have passed the file to
    others.
    """
    with suppress(OSError, psutil.Error):
        handle = os.pidfd_open(int(process.name))
        try:
            if set(psutil.Process(int(process.name)).uids()) == {user}:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
