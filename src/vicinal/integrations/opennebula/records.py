"""The regions on this host and their VMs; each is recorded before anything is created.

    /dev/shm/vicinal-one          this directory, open only to the drivers' user
        .lock                     held while records are read and changed
        OWNER-JOB.json            a region, and the VMs that have the region or are about to
        OWNER-JOB.ranks/          locked while ranks of one of these VMs leave or rejoin
        vm-ID                     locked while an action on the VM runs
        lacks-ID                  the VM may lack resources that it gave up to be saved or moved
    /dev/shm/vicinal-one-OWNER-JOB    the region

The records live as long as regions and VMs: a boot of the host clears all of them. A recorded VM
keeps its region as long as libvirt has the VM's domain, or an action on the VM runs. Each action
first removes what ended VMs left. So a killed driver leaves nothing for long.
"""

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import OWN_FILE, Durability, lock, locked, take_lock, write_atomically
from vicinal.base.sizes import show_size
from vicinal.host.memory_policy import memory_from
from vicinal.host.system import Host
from vicinal.host.topology import read_nodes
from vicinal.integrations.opennebula.call import log
from vicinal.integrations.opennebula.request import Limits, RegionRequest
from vicinal.region.creation import create

REGIONS = Path("/dev/shm")
"""The directory in which libvirt looks for the memory of a <shmem>."""
_DIRECTORY = REGIONS / "vicinal-one"
_STATE = "VICINAL_OPENNEBULA_STATE"
"""Environment variable that names another directory for the records; tests set it."""
_LOCK_SECONDS = 120.0
"""The longest work under this lock is the reservation of a large region's memory."""
_RANKS_SECONDS = 300.0
"""The longest work under the lock of ranks: ranks leave, and a guest releases its VM's devices."""
_RANKS = ".ranks"
_LACKS = "lacks-"
_REMEDY = "let only OpenNebula's drivers write there, and remove the directory"


def records_directory() -> Path:
    """The directory of this host's records: VICINAL_OPENNEBULA_STATE, or /dev/shm/vicinal-one."""
    return Path(os.environ.get(_STATE) or _DIRECTORY)


@dataclass(frozen=True)
class Record:
    """A region, and the ids of the VMs that keep it."""

    request: RegionRequest
    vms: frozenset[int]


class Records:
    """The records of one host."""

    def __init__(
        self, directory: Path, running: Callable[[], AbstractSet[int]], regions: Path = REGIONS
    ) -> None:
        self.directory = directory
        self._running = running
        """Returns the ids of the VMs that run here."""
        self._regions = regions

    def known(self, vm: int) -> bool:
        """Whether a record names the VM. Takes no lock."""
        return self.directory.is_dir() and any(vm in each.vms for each in self._read())

    @contextmanager
    def held(
        self, vm: int, request: RegionRequest, limits: Limits, nodes: Collection[int] = ()
    ) -> Iterator[int]:
        """Keep a region for a VM that the caller starts within the context.

        A new region is created on the NUMA nodes `nodes`. The region stays if the VM runs at the
        end. Yields a descriptor for the process that starts the VM: as long as one process has the
        descriptor open, no driver removes the region. Raises VicinalError, with nothing created, if
        the region is not possible.
        """
        self._prepare()
        with self._locked():
            hold = self._hold(vm)
            try:
                running = self._running()
                self._sweep(running)
                self._take(vm, request, limits, nodes)
            except BaseException:
                os.close(hold)
                self._tidy()
                raise
        with self._released(hold):
            yield hold

    @contextmanager
    def released(self, vm: int) -> Iterator[int]:
        """Release the region of a VM if the VM has ended within the context; yields as held()."""
        self._prepare()
        with self._locked():
            hold = self._hold(vm)
        with self._released(hold):
            yield hold

    def sweep(self) -> None:
        """Remove the regions of VMs that have ended. Raises VicinalError if the directory is not
        safe.
        """
        if self.directory.is_dir():
            self._prepare()
            with self._locked():
                self._sweep(self._running())

    def region_of(self, vm: int) -> RegionRequest | None:
        """The region of the VM; None if it has none. Raises VicinalError as all()."""
        return next((each.request for each in self.all() if vm in each.vms), None)

    def vms_of(self, request: RegionRequest) -> frozenset[int]:
        """The ids of the VMs that keep the region. Raises VicinalError as all()."""
        found = (each.vms for each in self.all() if each.request.key == request.key)
        return next(found, frozenset())

    def checked_file(self, request: RegionRequest) -> Path:
        """The region's file. Raises VicinalError if the file is missing, is not the drivers', or
        has another size than the record says.
        """
        path = self._regions / request.name
        try:
            status = path.lstat()
        except FileNotFoundError:
            raise VicinalError(
                f"{path} is missing, and VMs of the job {request.job!r} use it",
                "end these VMs first",
            ) from None
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or status.st_size != request.size_bytes:
            raise VicinalError(
                f"{path} is not the file that was created for the job {request.job!r}",
                "find out who changed it, and end the job's VMs",
            )
        return path

    def moving_ranks(self, request: RegionRequest) -> AbstractContextManager[None]:
        """Hold the lock of the region's ranks: only one driver makes ranks leave or rejoin at a
        time.
        """
        return locked(self.directory / f"{request.key}{_RANKS}", _RANKS_SECONDS)

    def lacks(self, vm: int, *, something: bool) -> None:
        """Record that a VM may lack resources that it gave up, or that it has all of them again."""
        if something:
            self._prepare()
            self._lacking(vm).touch(mode=0o600)
        else:
            self._lacking(vm).unlink(missing_ok=True)

    def expect(self, vm: int) -> str:
        """Record that a VM will arrive, and lacks resources; returns a token to compare with
        expected().
        """
        self.lacks(vm, something=True)
        word = os.urandom(8).hex()
        self._lacking(vm).write_text(word)
        return word

    def expected(self, vm: int) -> str:
        """The token of the last expect() for the VM; empty if the VM lacks nothing."""
        try:
            return self._lacking(vm).read_text()
        except FileNotFoundError:
            return ""

    def lacking(self) -> list[int]:
        """Ids of the VMs that may lack resources. Raises VicinalError as all()."""
        if not os.path.lexists(self.directory):
            return []
        self._check_directory()
        files = self.directory.glob(f"{_LACKS}*")
        return sorted(int(file.name.removeprefix(_LACKS)) for file in files)

    @contextmanager
    def unattended(self, vm: int) -> Iterator[bool]:
        """Yields whether no other action on the VM runs. Within the context, this action holds the
        VM.
        """
        self._prepare()
        with self._locked():
            free = not self._is_held(vm)
            hold = self._hold(vm)
        try:
            yield free
        finally:
            os.close(hold)

    def all(self) -> list[Record]:
        """All records. Raises VicinalError if others may have written them."""
        if not os.path.lexists(self.directory):
            return []
        self._check_directory()
        return list(self._read())

    @contextmanager
    def _released(self, hold: int) -> Iterator[None]:
        ended = False
        try:
            yield
            ended = True
        finally:
            with self._locked():
                # Background processes of the script inherit the descriptor and would hold the lock:
                # unlock. But after an interrupted action, a process of the script may still be
                # starting the VM: keep the lock.
                if ended:
                    fcntl.flock(hold, fcntl.LOCK_UN)
                os.close(hold)
                self._sweep(self._running())

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.directory, _LOCK_SECONDS)

    def _prepare(self) -> None:
        """Create the directory if it is missing, and check its owner and mode."""
        with suppress(FileExistsError):
            self.directory.mkdir(mode=0o700)
        self._check_directory()

    def _check_directory(self) -> None:
        """Raise VicinalError if the directory is not this user's, or is open to others.

        Every user can create files in /dev/shm.
        """
        status = self.directory.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise VicinalError(f"{self.directory} is not a directory", _REMEDY)
        if status.st_uid != os.geteuid():
            raise VicinalError(f"{self.directory} belongs to user {status.st_uid}", _REMEDY)
        if status.st_mode & 0o077:
            raise VicinalError(f"{self.directory} is open to other users", _REMEDY)

    def _hold(self, vm: int) -> int:
        """Mark that an action on the VM runs, until the descriptor is closed or the process has
        ended.
        """
        # Shared, because a VM may be ended while another action on it runs.
        return lock(self.directory / f"vm-{vm}", OWN_FILE, shared=True, seconds=None)

    def _lacking(self, vm: int) -> Path:
        return self.directory / f"{_LACKS}{vm}"

    def _is_held(self, vm: int) -> bool:
        try:
            file = os.open(self.directory / f"vm-{vm}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not take_lock(file)
        finally:
            os.close(file)

    def _take(
        self, vm: int, request: RegionRequest, limits: Limits, nodes: Collection[int]
    ) -> None:
        there = {record.request.key: record for record in self._read()}
        for each in there.values():
            if vm in each.vms and each.request.key != request.key:
                raise VicinalError(
                    f"VM {vm} runs here with the region {each.request.name!r}", "end it first"
                )
        record = there.get(request.key)
        if record is not None:
            self._join(record, vm, request)
            return
        _check_limits(request, [each.request for each in there.values()], limits)
        free = {each.number: each.available_bytes for each in read_nodes(Host())} if nodes else {}
        self._write(Record(request, frozenset({vm})))
        try:
            with memory_from(nodes) as trouble:
                create(
                    self._regions / request.name,
                    members=request.members,
                    section_bytes=request.section_bytes,
                    label=request.job,
                    for_guests=True,
                )
            if trouble := trouble or _lacking_room(request, nodes, free):
                log("region", f"the kernel chose the NUMA nodes of the region: {trouble}")
        except BaseException:
            self._file(request).unlink()
            raise

    def _join(self, record: Record, vm: int, request: RegionRequest) -> None:
        has = record.request
        if has != request:
            raise VicinalError(
                f"the job {request.job!r} has a region of {has.size_bytes >> 20}M for "
                f"{has.members} members here, and VM {vm} requests {request.size_bytes >> 20}M for "
                f"{request.members}",
                "give all VMs of a job the same SIZE and MEMBERS",
            )
        self.checked_file(request)
        self._write(replace(record, vms=record.vms | {vm}))

    def _sweep(self, running: AbstractSet[int]) -> None:
        """Remove the records and regions of VMs that neither run nor have an action."""
        for record in self._read():
            left = {vm for vm in record.vms if vm in running or self._is_held(vm)}
            if not left:
                self._remove_region(record.request)
                self._file(record.request).unlink(missing_ok=True)
                shutil.rmtree(self.directory / f"{record.request.key}{_RANKS}", ignore_errors=True)
            elif left != record.vms:
                self._write(replace(record, vms=frozenset(left)))
        self._tidy()

    def _remove_region(self, request: RegionRequest) -> None:
        """Remove the region's file if this user owns it. /dev/shm is sticky, so no other user can
        replace it.
        """
        path = self._regions / request.name
        with suppress(FileNotFoundError):
            if path.lstat().st_uid == os.geteuid():
                path.unlink()

    def _tidy(self) -> None:
        """Remove the lock files of VMs without an action, and half-written files."""
        for file in self.directory.glob("*.part"):
            file.unlink(missing_ok=True)
        for file in self.directory.glob("vm-*"):
            if not self._is_held(int(file.name.removeprefix("vm-"))):
                file.unlink(missing_ok=True)

    def _file(self, request: RegionRequest) -> Path:
        return self.directory / f"{request.key}.json"

    def _write(self, record: Record) -> None:
        request = record.request
        text = json.dumps(
            {
                "owner": request.owner,
                "job": request.job,
                "size_bytes": request.size_bytes,
                "members": request.members,
                "vms": sorted(record.vms),
            }
        )
        try:
            write_atomically(self._file(request), text, Durability.NONE)
        except OSError as error:
            raise VicinalError(
                f"{self.directory} cannot be written ({describe_os_error(error)}), and each "
                "region needs a record",
                "make room in /dev/shm",
            ) from error

    def _read(self) -> Iterator[Record]:
        for file in sorted(self.directory.glob("*.json")):
            try:
                values = json.loads(file.read_text())
                vms = frozenset(int(vm) for vm in values.pop("vms"))
                record = Record(RegionRequest(**values), vms)
            except FileNotFoundError:  # read without the lock: another process removed the file
                continue
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise VicinalError(f"{file} is not a record ({error})", _REMEDY) from error
            if self._file(record.request) != file:
                raise VicinalError(f"{file} is the record of another region", _REMEDY)
            yield record


def _lacking_room(request: RegionRequest, nodes: Collection[int], free: Mapping[int, int]) -> str:
    """A text if the region certainly did not fit on its NUMA nodes; empty if it may have fit.

    If the nodes are full, the kernel silently takes memory of other nodes.
    """
    room = sum(free.get(node, request.size_bytes) for node in nodes)
    if not nodes or request.size_bytes <= room:
        return ""
    where = f"NUMA node {', '.join(map(str, sorted(nodes)))}"
    return f"{where} had room for {show_size(room)} of its {show_size(request.size_bytes)}"


def _check_limits(request: RegionRequest, others: list[RegionRequest], limits: Limits) -> None:
    if request.size_bytes > limits.region:
        raise VicinalError(
            f"the region would have {show_size(request.size_bytes)}, and this host allows "
            f"{show_size(limits.region)}",
            "lower SIZE, or ask the administrator to raise REGION_SIZE_MAX",
        )
    has = sum(each.size_bytes for each in others if each.owner == request.owner)
    if has + request.size_bytes > limits.user:
        raise VicinalError(
            f"this user has regions of {show_size(has)} on this host and requests "
            f"{show_size(request.size_bytes)} more, and {show_size(limits.user)} are allowed",
            "end other jobs, or ask the administrator to raise USER_SIZE_MAX",
        )
