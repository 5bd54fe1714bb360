"""Creates and removes regions.

The module for memory modules (vicinal.region.module) is imported only if one is used.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import pwd
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.sizes import show_size
from vicinal.region import geometry as layout
from vicinal.region.filesystem import MAP_WHOLE, SPARSE_FILESYSTEMS, filesystem_of, room
from vicinal.region.locks import is_locked
from vicinal.region.opening import PREFIX, SEALS

DEFAULT_MEMBERS = 16
DEFAULT_SECTION_BYTES = 964 * 1024
"""An odd number of pages, which is best for hundreds of members: see `geometry.odd_pages()`."""

LABEL_BYTES = layout.LABEL_BYTES

_LEAST_MEMBERS = 8
_ENDPOINTS_A_RANK = 2
"""Open MPI may open two endpoints in a process."""

_ELSEWHERE = "choose a directory on tmpfs that you may write to, such as /dev/shm"


@dataclass(frozen=True)
class Region:
    """A created region; in a `with` statement, the region is removed at the end."""

    path: Path
    """The file, or the socket of the broker that hands out the region."""
    id: str
    members: int
    section_bytes: int
    """Bytes for each member, its heap included."""
    heap_bytes: int
    region_bytes: int
    sparse_heaps: bool = False
    """Whether members reserve the memory of heaps when they use it."""
    brokered: bool = False

    @property
    def first_bytes(self) -> int:
        """Bytes that were reserved when the region was created."""
        heap_bytes = self.heap_bytes if self.sparse_heaps else 0
        return layout.first_bytes(self.members, self.section_bytes, heap_bytes)

    @property
    def name(self) -> str:
        """The value for VICINAL_REGION."""
        return f"{PREFIX if self.brokered else 'file:'}{self.path}"

    def remove(self) -> None:
        """Remove the region's file or socket if it still exists; members keep their mappings."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def default_members(ranks: int, *, reserved_heaps: bool = False) -> int:
    """Return the number of member slots for a region of `ranks` ranks, with a few spare slots.

    There are no spare slots if each slot reserves the memory of its heap, as in files for guests.
    The result is never more than a region's maximum, which may leave one slot for each rank.
    """
    if reserved_heaps:
        return min(layout.MEMBERS_MAX, _ENDPOINTS_A_RANK * ranks)
    return min(layout.MEMBERS_MAX, max(_LEAST_MEMBERS, _ENDPOINTS_A_RANK * ranks + 2))


def create(
    path: str | os.PathLike[str],
    *,
    members: int = DEFAULT_MEMBERS,
    section_bytes: int = DEFAULT_SECTION_BYTES,
    heap_bytes: int = 0,
    label: str = "",
    for_guests: bool = False,
    for_nvdimm: bool = False,
    existing: bool = False,
) -> Region:
    """Create a region of `members` slots, which only its owner can read, with its memory reserved.

    Each member gets `section_bytes` for its messages, and behind them a heap of `heap_bytes` for
    its application's memory. Members reserve the memory of heaps when they use it, except in files
    for guests, which cannot: there it is reserved now.

    `for_guests` makes the file's length a power of two, as QEMU's ivshmem device requires.
    `for_nvdimm` makes the file a memory module (see vicinal.region.module), which a guest finds as
    /dev/dax; members on this host may use the file, too. `existing` writes the region into an
    existing file, such as the file that QEMU created for its device; the file keeps its length,
    and the beginning of a memory module stays.

    Raises VicinalError if the file exists (or, with `existing`, does not), if it cannot be created
    or written, if there is no room, or if a size is out of bounds. No new file is left behind then.
    """
    file = Path(path).absolute()
    if for_nvdimm and existing:
        raise VicinalError(
            "--for-nvdimm is for new files",
            "leave out --for-nvdimm: an existing memory module keeps its beginning",
        )
    if for_nvdimm and for_guests:
        raise VicinalError(
            "a file is for ivshmem (--for-guests) or a memory module (--for-nvdimm), not for both",
            "choose one of the two options",
        )
    section_bytes += heap_bytes
    size = _checked_size(members, section_bytes, heap_bytes, label)
    lasting = existing or for_guests or for_nvdimm
    fd = _open_existing(file, size) if existing else _open_new(file)
    try:
        page = max(os.fstat(fd).st_blksize, layout.PAGE)
        if existing:
            length = os.fstat(fd).st_size
            start = _region_offset(fd, length)
        else:
            length = _file_length(page, file, size, for_guests, for_nvdimm)
            start = 0
        filesystem = filesystem_of(fd)
        sparse = _can_be_sparse(heap_bytes, lasting, filesystem)
        region = Region(
            file, os.urandom(16).hex(), members, section_bytes, heap_bytes, size, sparse
        )
        parts = _parts(region, page, length) if sparse else [(0, length)]
        _reserve(fd, file, file.parent, filesystem, length, parts)
        if for_nvdimm:
            start = _write_info(fd, length)
        _write(fd, region, label, start, length)
    except BaseException:
        if not existing:
            file.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return region


def create_memory(
    path: Path,
    *,
    members: int = DEFAULT_MEMBERS,
    section_bytes: int = DEFAULT_SECTION_BYTES,
    heap_bytes: int = 0,
    label: str = "",
) -> tuple[int, Region]:
    """Create a region in memory that no process can truncate, for a broker to hand out.

    `path` is the broker's socket, which is not created. Other arguments are as for create().
    Returns a descriptor of the memory, and the region. Raises VicinalError if there is no room, or
    if a size is out of bounds.
    """
    section_bytes += heap_bytes
    size = _checked_size(members, section_bytes, heap_bytes, label)
    region = Region(
        path,
        os.urandom(16).hex(),
        members,
        section_bytes,
        heap_bytes,
        size,
        sparse_heaps=heap_bytes > 0,
        brokered=True,
    )
    length = layout.round_up(size, layout.PAGE)
    try:
        fd = _new_memory()
    except OSError as error:
        raise VicinalError(
            f"the kernel gives no memory that can be sealed: {describe_os_error(error)}",
            "use a Linux with memfd_create, or a region's file of one user",
        ) from error
    try:
        # Members of other users open it again by /proc/self/fd. Nobody else has a name for it.
        os.fchmod(fd, 0o666)
        parts = _parts(region, layout.PAGE, length)
        _reserve(fd, None, fd, "tmpfs", length, parts)
        _write(fd, region, label, 0, length)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd, region


def _new_memory() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    no_exec = 0x8  # MFD_NOEXEC_SEAL, since Linux 6.3; a system may demand it
    try:
        return os.memfd_create("vicinal-region", flags | no_exec)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("vicinal-region", flags)


def check_creation(
    path: Path,
    *,
    members: int,
    section_bytes: int,
    heap_bytes: int,
    label: str,
    released: tuple[int, int] = (0, 0),
    for_guests: bool = False,
    for_nvdimm: bool = False,
) -> None:
    """Raise VicinalError if create() could not create a region here.

    `released` are bytes that will be free by then: of the files in that directory, and of other
    memory.
    """
    size = _checked_size(members, section_bytes + heap_bytes, heap_bytes, label)
    try:
        directory = path.parent.stat()
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied")
    except OSError as error:
        raise _cannot("create", path, error) from error
    page = max(directory.st_blksize, layout.PAGE)
    length = _file_length(page, path, size, for_guests, for_nvdimm)
    filesystem = filesystem_of(path.parent)
    free = room(path.parent, filesystem, *released)
    taken = length
    if _can_be_sparse(heap_bytes, for_guests or for_nvdimm, filesystem):
        region = Region(path, "", members, section_bytes + heap_bytes, heap_bytes, size)
        taken = sum(part for _, part in _parts(region, page, length))
    if taken > free:
        raise _no_room(path, filesystem, taken, free)


def file_bytes(
    members: int, section_bytes: int, *, for_guests: bool = False, for_nvdimm: bool = False
) -> int:
    """Length in bytes of a region's file, on a filesystem with small pages."""
    size = layout.region_bytes(members, section_bytes)
    return _file_length(layout.PAGE, Path(), size, for_guests, for_nvdimm)


def _checked_size(members: int, section_bytes: int, heap_bytes: int, label: str) -> int:
    """Bytes of a whole region; `section_bytes` includes the heap. Raises VicinalError."""
    fault = layout.section_fault(members, section_bytes, heap_bytes)
    if fault:
        options = "--heap" if fault.startswith("heaps") else "--members or --section-size"
        raise VicinalError(f"a region cannot have {fault}", f"change {options}")
    if len(label.encode(errors="replace")) > LABEL_BYTES:
        raise VicinalError(f"the label has more than {LABEL_BYTES} bytes", "shorten the label")
    return layout.region_bytes(members, section_bytes)


def remove(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Remove a region's file; with `force` even while members use the region.

    Raises VicinalError if the file is not a region, if living members hold locks on the file, or if
    the file cannot be removed.
    """
    file = Path(path).absolute()
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _cannot("open", file, error) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not _is_region(fd, status.st_size):
            raise VicinalError(
                f"{file} is not a region", "the file was not removed; to remove it, use rm"
            )
        if not force and is_locked(fd, 0, layout.MEMBERS_MAX):
            raise VicinalError(
                f"living members still use {file}", "end their job first, or use --force"
            )
        file.unlink()
    except OSError as error:
        raise _cannot("remove", file, error) from error
    finally:
        os.close(fd)


def _is_region(fd: int, length: int) -> bool:
    return os.pread(fd, 8, _region_offset(fd, length)) == layout.MAGIC.to_bytes(8, "little")


def _region_offset(fd: int, length: int) -> int:
    from vicinal.region.module import region_offset

    return region_offset(fd, length)


def _open_new(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(file, flags, 0o600)
    except FileExistsError as error:
        raise VicinalError(
            f"{file} exists already",
            f"remove the region with `vicinal region remove {file}`, or choose another path",
        ) from error
    except OSError as error:
        raise _cannot("create", file, error) from error
    os.fchmod(fd, 0o600)
    return fd


def _open_existing(file: Path, size: int) -> int:
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _cannot("open", file, error) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise VicinalError(f"{file} is not a regular file", "name the device's backing file")
        if status.st_uid != os.geteuid():
            raise VicinalError(
                f"{file} belongs to {user_name(status.st_uid)}", "create the region as that user"
            )
        room = status.st_size - _region_offset(fd, status.st_size)
        if room < size:
            raise VicinalError(
                f"{file} has {show_size(room)} and the region takes {show_size(size)}",
                "lower --members, --section-size or --heap, or make the file larger",
            )
        if is_locked(fd, 0, layout.MEMBERS_MAX):
            raise VicinalError(f"living members use {file}", "end their job first")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _file_length(page: int, file: Path, size: int, for_guests: bool, for_nvdimm: bool) -> int:
    """The length of the file: whole pages of its filesystem, which are huge pages on hugetlbfs."""
    if for_nvdimm:
        from vicinal.region.module import ALIGNMENT, module_bytes

        if page > ALIGNMENT:
            raise VicinalError(
                f"{file} has pages of {show_size(page)}, and a memory module starts with 2 MiB",
                "choose a file on tmpfs, or on hugetlbfs with pages of 2 MiB",
            )
        size = module_bytes(size)
    if for_guests:
        size = 1 << (size - 1).bit_length()
    return layout.round_up(size, page)


def _can_be_sparse(heap_bytes: int, lasting: bool, filesystem: str) -> bool:
    """Whether members can reserve the memory of their heaps later. `lasting`: the file is for
    guests, whose accesses fault if the host has no memory left."""
    return heap_bytes > 0 and not lasting and filesystem in SPARSE_FILESYSTEMS


def _parts(region: Region, page: int, length: int) -> list[tuple[int, int]]:
    """Return offset and length of each part of the file that has no heap, in whole pages."""
    tables = layout.sections_offset(region.members)
    section = region.section_bytes - region.heap_bytes
    parts: list[tuple[int, int]] = [(0, layout.round_up(tables, page))]
    for slot in range(region.members):
        start = layout.section_offset(slot, region.members, region.section_bytes)
        end = min(length, layout.round_up(start + section, page))
        start = max(start // page * page, sum(parts[-1]))
        if start < end:
            parts.append((start, end - start))
    return parts


def _reserve(
    fd: int,
    file: Path | None,
    place: Path | int,
    filesystem: str,
    length: int,
    parts: list[tuple[int, int]],
) -> None:
    """Give the file its length and allocate `parts` now, so that no access of a member faults.

    `file` is None for memory without a file; `place` is as for room().
    """
    taken = sum(part for _, part in parts)
    free = room(place, filesystem)
    missing = taken - os.fstat(fd).st_blocks * 512
    # Check the free space first, because filling a tmpfs or the memory would harm other processes.
    if missing > free:
        raise _no_room(file, filesystem, taken, free)
    try:
        if os.fstat(fd).st_size < length:
            os.ftruncate(fd, length)
        for start, part in parts:
            os.posix_fallocate(fd, start, part)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
            raise _no_room(file, filesystem, taken, free) from error
        if error.errno == errno.EFBIG:
            raise VicinalError(
                f"{file or 'the region'} would have {show_size(length)}, more than this process's "
                "limit for files",
                "raise the limit (ulimit -f), or lower --members, --section-size or --heap",
            ) from error
        raise _cannot("reserve", file or Path("the region's memory"), error) from error


def _no_room(file: Path | None, filesystem: str, length: int, free: int) -> VicinalError:
    if file is None:
        return VicinalError(
            f"this host has {show_size(free)} of memory free and the region takes "
            f"{show_size(length)}",
            "lower --members, --section-size or --heap, or end other programs",
        )
    return VicinalError(
        f"{file.parent} ({filesystem}) has {show_size(free)} free "
        f"and the region takes {show_size(length)}",
        "lower --members, --section-size or --heap, remove old files there, or choose another "
        "directory",
    )


def _write_info(fd: int, length: int) -> int:
    """Write the beginning of a memory module; return the offset at which the region begins."""
    from vicinal.region.module import DATA_OFFSET, INFO_OFFSET, info_block

    with mmap.mmap(fd, DATA_OFFSET) as memory:
        block = info_block(length)
        memory[INFO_OFFSET : INFO_OFFSET + len(block)] = block
    return DATA_OFFSET


def _write(fd: int, region: Region, label: str, start: int, length: int) -> None:
    """Write the header, with its magic last: before that, no process takes the file for a
    region."""
    header = layout.header_bytes(
        {
            "version": layout.VERSION,
            "members": region.members,
            "region_bytes": region.region_bytes,
            "id": bytes.fromhex(region.id),
            "section_bytes": region.section_bytes,
            "heap_bytes": region.heap_bytes,
            "sparse_heaps": region.sparse_heaps,
            "sections_offset": layout.sections_offset(region.members),
            "created": int(time.time()),
            "label": label.encode(errors="replace"),
        }
    )
    # A mapping instead of write(), which hugetlbfs does not support.
    with mmap.mmap(fd, length - start, flags=MAP_WHOLE, offset=start) as memory:
        memory[0:8] = bytes(8)
        _clear(memory, region)
        memory[8 : layout.PAGE] = header[8:]
        memory[0:8] = layout.MAGIC.to_bytes(8, "little")


def _clear(memory: mmap.mmap, region: Region) -> None:
    """Zero every table. An arena needs no zeroing: it has no meaning until its owner publishes a
    ring."""
    memory[layout.PAGE : layout.sections_offset(region.members)] = bytes(
        layout.sections_offset(region.members) - layout.PAGE
    )
    tables = bytes(layout.arena_offset(region.members))
    for slot in range(region.members):
        start = layout.section_offset(slot, region.members, region.section_bytes)
        memory[start : start + len(tables)] = tables


def user_name(user: int) -> str:
    """Return the name of a user; "user NUMBER" if the user has no name on this host."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return f"user {user}"


def _cannot(verb: str, file: Path, error: OSError) -> VicinalError:
    remedies = {
        errno.EACCES: "run as the file's owner, or " + _ELSEWHERE,
        errno.EPERM: "run as the file's owner",
        errno.ELOOP: "symbolic links are not followed: name the file itself",
        errno.ENAMETOOLONG: "choose a shorter name",
    }
    remedy = remedies.get(error.errno or 0)
    if remedy is None:
        remedy = "check the path" if verb == "open" else _ELSEWHERE
    return VicinalError(f"cannot {verb} {file}: {describe_os_error(error)}", remedy)
