"""Making and removing regions on real filesystems."""

import ctypes
import mmap
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_support import CHECKOUT, Vicinal, error_line

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.region import creation, filesystem
from vicinal.region import format as layout


def test_a_new_region_is_private_reserved_and_empty(region_path: Path) -> None:
    made = region.create(region_path, members=5, section_bytes=1 << 20, label="trial")

    status = region_path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == made.region_bytes == layout.region_bytes(5, 1 << 20)
    assert status.st_blocks * 512 >= made.region_bytes
    header = np.frombuffer(region_path.read_bytes(), layout.HEADER, count=1)[0]
    assert header["magic"] == layout.MAGIC
    assert header["sections_offset"] == layout.sections_offset(5)
    assert bytes(header["label"]).rstrip(b"\0") == b"trial"
    assert bytes(header["id"]).hex() == made.id
    assert made.name == f"file:{region_path}"


def test_a_heap_comes_on_top_of_each_section(vicinal: Vicinal, region_path: Path) -> None:
    result = vicinal("region", "create", region_path, "--members", 3, "--heap", "1M")
    assert result.returncode == 0, result.stderr
    header = region.inspect(region_path).header
    assert header.heap_bytes == 1 << 20
    assert header.section_bytes == region.DEFAULT_SECTION_BYTES + (1 << 20)
    assert region_path.stat().st_size == layout.region_bytes(3, header.section_bytes)
    assert "1.0 MiB of each, reserved when used" in vicinal("region", "show", region_path).stdout


def test_heaps_take_no_memory_at_first(vicinal: Vicinal, region_path: Path) -> None:
    result = vicinal("region", "create", region_path, "--members", 3, "--heap", "1024G")
    assert result.returncode == 0, result.stderr
    assert "3 members, 2.8 MiB, and heaps of 1024.0 GiB" in result.stdout
    header = region.inspect(region_path).header
    assert header.sparse_heaps
    assert header.first_bytes == layout.region_bytes(3, region.DEFAULT_SECTION_BYTES)
    taken = region_path.stat().st_blocks * 512
    assert header.first_bytes <= taken <= header.first_bytes + 4 * layout.PAGE
    assert vicinal("region", "check", region_path).returncode == 0
    # A hole where no heap is, is a fault.
    with region_path.open("r+b") as file:
        start = layout.section_offset(1, 3, header.section_bytes)
        libc = ctypes.CDLL(None, use_errno=True)
        hole = [ctypes.c_int64(start + layout.arena_offset(3)), ctypes.c_int64(4 * layout.PAGE)]
        assert libc.fallocate64(file.fileno(), 3, *hole) == 0, ctypes.get_errno()
    assert "SIGBUS" in error_line(vicinal("region", "check", region_path))


@pytest.mark.parametrize("option", ["--for-guests", "--for-nvdimm"])
def test_heaps_for_guests_are_reserved(vicinal: Vicinal, region_path: Path, option: str) -> None:
    """A guest cannot reserve pages on its host, and an access to a hole may end the guest."""
    result = vicinal("region", "create", region_path, "--members", 3, "--heap", "1M", option)
    assert result.returncode == 0, result.stderr
    assert not region.inspect(region_path).header.sparse_heaps
    status = region_path.stat()
    assert status.st_blocks * 512 >= status.st_size


def test_heaps_in_an_existing_file_are_reserved(vicinal: Vicinal, region_path: Path) -> None:
    region_path.touch(0o600)
    os.truncate(region_path, 8 << 20)
    command = ("region", "create", region_path, "--existing", "--members", 3)
    assert vicinal(*command, "--heap", "1M").returncode == 0
    assert not region.inspect(region_path).header.sparse_heaps
    assert region_path.stat().st_blocks * 512 == 8 << 20
    assert vicinal(*command).returncode == 0
    assert region.inspect(region_path).header.heap_bytes == 0


@pytest.mark.parametrize(
    ("members", "heap_bytes"), [(2, 64 << 20), (16, 64 << 20), (64, 64 << 20), (512, 8 << 20)]
)
def test_a_heap_by_default(
    vicinal: Vicinal, region_path: Path, members: int, heap_bytes: int
) -> None:
    """All heaps together take at most 4 GiB of addresses, and no memory."""
    assert vicinal("region", "create", region_path, "--members", members).returncode == 0
    header = region.inspect(region_path).header
    assert header.heap_bytes == heap_bytes
    assert header.sparse_heaps
    assert header.section_bytes // layout.PAGE % 2 == 1
    taken = region_path.stat().st_blocks * 512
    without = layout.region_bytes(members, region.DEFAULT_SECTION_BYTES)
    assert without <= taken <= without + 16 * layout.PAGE
    assert vicinal("region", "remove", region_path).returncode == 0
    assert vicinal("region", "create", region_path, "--heap", "0").returncode == 0
    assert region.inspect(region_path).header.heap_bytes == 0


@pytest.mark.parametrize("option", ["--for-guests", "--for-nvdimm"])
@pytest.mark.parametrize("members", [2, 3, 9, 16, 100])
def test_guests_get_what_the_length_leaves_over(
    vicinal: Vicinal, region_path: Path, members: int, option: str
) -> None:
    """The file is as long as without heaps."""
    lengths = set()
    for arguments in ([], ["--heap", "0"]):
        result = vicinal("region", "create", region_path, "--members", members, option, *arguments)
        assert result.returncode == 0, result.stderr
        lengths.add(region_path.stat().st_size)
        if not arguments:
            header = region.inspect(region_path).header
            left = region_path.stat().st_size - header.region_bytes
            left -= (2 << 20) * (option == "--for-nvdimm")
            assert header.heap_bytes > 0
            assert 0 <= left < members * 2 * layout.PAGE
        region_path.unlink()
    assert len(lengths) == 1


def test_a_filesystem_of_another_mount_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mount is not listed here: nodes of a job have their region there."""
    monkeypatch.setattr(filesystem, "filesystem_type", lambda _: "unknown")
    assert filesystem.filesystem_of(Path("/dev/shm")) == "tmpfs"
    assert filesystem.filesystem_of(Path("/proc")) == "unknown"
    fd = os.open("/dev/shm", os.O_PATH)
    try:
        assert filesystem.filesystem_of(fd) == "tmpfs"
    finally:
        os.close(fd)


def test_limits_of_the_process_bound_the_default() -> None:
    script = """
import resource, sys
from pathlib import Path
from vicinal.region.heap_size import default_heap
for limit in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (1 << 30, before[1]))
    print(default_heap(16, 964 << 10, directory=Path("/dev/shm")) >> 10)
    resource.setrlimit(limit, before)
print(default_heap(16, 964 << 10, directory=Path("/proc")))
print(default_heap(16, 964 << 10, directory=Path("/nowhere")))
print(default_heap(16, 964 << 10, most=32 << 20) >> 10)
print(default_heap(16, 964 << 10, most=1 << 20))
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(line) for line in result.stdout.split()] == [8192, 64568, 0, 0, 1080, 0]


def test_mode_is_private_whatever_the_umask(region_path: Path) -> None:
    before = os.umask(0o277)
    try:
        region.create(region_path, members=2, section_bytes=layout.SECTION_MIN)
    finally:
        os.umask(before)
    assert stat.S_IMODE(region_path.stat().st_mode) == 0o600


def test_every_region_has_an_id_of_its_own(region_path: Path) -> None:
    ids = set()
    for _ in range(3):
        with region.create(region_path, members=2) as made:
            ids.add(made.id)
        assert not region_path.exists()
    assert len(ids) == 3


def test_guests_get_a_power_of_two(region_path: Path) -> None:
    made = region.create(region_path, members=5, for_guests=True)
    assert made.region_bytes == layout.region_bytes(5, region.DEFAULT_SECTION_BYTES)
    assert region_path.stat().st_size == 8 * 1024 * 1024
    assert region_path.stat().st_blocks * 512 >= 8 * 1024 * 1024


def test_a_file_that_is_there_is_left_alone(vicinal: Vicinal, region_path: Path) -> None:
    region_path.write_text("precious")
    line = error_line(vicinal("region", "create", region_path))
    assert "exists already" in line
    assert region_path.read_text() == "precious"


def test_an_existing_file_becomes_a_region(vicinal: Vicinal, region_path: Path) -> None:
    """Like the file that QEMU makes for an ivshmem device: it may be sparse or have old bytes."""
    region_path.write_bytes(b"\xff" * (4 << 20))
    region_path.chmod(0o600)
    os.truncate(region_path, 16 << 20)
    result = vicinal("region", "create", "--existing", region_path, "--members", 8)
    assert result.returncode == 0, result.stderr
    assert region_path.stat().st_size == 16 << 20
    assert region_path.stat().st_blocks * 512 == 16 << 20
    state = region.inspect(region_path)
    assert state.members == ()
    assert state.header.members == 8
    with region_path.open("rb") as file:
        file.seek(layout.section_offset(3, 8, region.DEFAULT_SECTION_BYTES))
        assert not any(file.read(layout.arena_offset(8)))
    assert vicinal("region", "check", region_path).returncode == 0


def test_an_existing_file_must_be_large_enough(vicinal: Vicinal, region_path: Path) -> None:
    region_path.write_bytes(bytes(1 << 20))
    line = error_line(vicinal("region", "create", "--existing", region_path))
    assert "has 1.0 MiB and the region takes" in line
    assert region_path.read_bytes() == bytes(1 << 20)


def test_an_existing_file_must_be_there(vicinal: Vicinal, region_path: Path) -> None:
    assert "no such file" in error_line(vicinal("region", "create", "--existing", region_path))
    assert not region_path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--members", "1"), "2 to 512"),
        (("--members", "513"), "2 to 512"),
        (("--section-size", "255K"), "256K to 1G"),
        (("--section-size", "2G"), "256K to 1G"),
        (("--section-size", "300001"), "such as 296 KiB"),
        (("--section-size", "lots"), "not a size"),
        (("--section-size", "-1M"), "not a size"),
        (("--heap", "5000"), "such as 8 KiB"),
        (("--heap", "1025G"), "up to 1024G"),
        (("--heap", "-1"), "not a size"),
        (("--label", "x" * 65), "64 bytes"),
    ],
)
def test_sizes_out_of_bounds(
    vicinal: Vicinal, region_path: Path, arguments: tuple[str, str], words: str
) -> None:
    line = error_line(vicinal("region", "create", region_path, *arguments))
    assert words in line
    assert not region_path.exists()


def test_a_directory_that_is_not_there(vicinal: Vicinal) -> None:
    line = error_line(vicinal("region", "create", "/dev/shm/vicinal-no-such-directory/region"))
    assert "no such file or directory" in line
    assert "/dev/shm" in line.rpartition(": ")[2]


def test_more_than_there_is(vicinal: Vicinal, region_path: Path) -> None:
    line = error_line(
        vicinal("region", "create", region_path, "--members", 512, "--section-size", "1G")
    )
    assert "free" in line
    assert "512.0 GiB" in line
    for option, size in (("--for-guests", "4096.0 GiB"), ("--for-nvdimm", "2048.0 GiB")):
        line = error_line(
            vicinal("region", "create", region_path, "--members", 2, "--heap", "1024G", option)
        )
        assert size in line
    assert "--heap" in line
    assert not region_path.exists()


def _in_small_tmpfs(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a mount namespace where `directory` is a tmpfs of 4 MiB."""
    enter = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        enter += ["--user", "--map-root-user"]
    return subprocess.run(
        [
            *enter,
            "sh",
            "-c",
            'mount -t tmpfs -o size=4M vicinal-test "$1" && exec "$2" -c "$3"',
            "sh",
            directory,
            sys.executable,
            script,
        ],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("warned", [True, False], ids=["found out before", "met on the way"])
def test_a_full_tmpfs(tmp_path: Path, warned: bool) -> None:
    """If no warning is expected, there seems to be room until posix_fallocate fails."""
    script = f"""
import mmap
import os
from vicinal.region import creation
from vicinal.base.errors import VicinalError
if not {warned}:
    creation.room = lambda *_: 1 << 40
creation.create({str(tmp_path / "fits")!r}, members=3)
try:
    creation.create({str(tmp_path / "does-not")!r}, members=3)
except VicinalError as error:
    print(error)
print(os.listdir({str(tmp_path)!r}))
"""
    result = _in_small_tmpfs(tmp_path, script)
    assert result.returncode == 0, result.stderr
    message, files = result.stdout.splitlines()
    assert f"{tmp_path} (tmpfs) has" in message
    assert "the region takes 2.8 MiB" in message
    if warned:
        assert "has 1.2 MiB free" in message
    assert files == "['fits']"


def test_a_limit_on_file_size(region_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(VicinalError, match="ulimit -f"):
            region.create(region_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not region_path.exists()


def test_elsewhere_than_in_memory_is_unwise(vicinal: Vicinal, checkout: Path) -> None:
    path = checkout / "build" / f"vicinal-test-{os.getpid()}"
    try:
        result = vicinal("region", "create", path, "--members", 2, "--section-size", "256K")
        if subprocess.run(["stat", "-fc%T", path.parent], capture_output=True).stdout == b"tmpfs\n":
            pytest.skip("the checkout itself is on tmpfs, where a region is welcome")
        assert result.returncode == 0
        assert result.stderr.startswith("vicinal: warning: ")
        assert "/dev/shm" in result.stderr
    finally:
        path.unlink(missing_ok=True)


def test_remove(vicinal: Vicinal, region_path: Path) -> None:
    region.create(region_path)
    assert vicinal("region", "remove", region_path).returncode == 0
    assert not region_path.exists()
    assert "no such file" in error_line(vicinal("region", "remove", region_path))


def test_remove_spares_what_is_no_region(vicinal: Vicinal, region_path: Path) -> None:
    region_path.write_bytes(bytes(1 << 16))
    assert "is not a region" in error_line(vicinal("region", "remove", "--force", region_path))
    assert region_path.exists()


def test_remove_does_not_follow_links(vicinal: Vicinal, region_path: Path, tmp_path: Path) -> None:
    region.create(region_path)
    link = tmp_path / "link"
    link.symlink_to(region_path)
    assert "symbolic link" in error_line(vicinal("region", "remove", link))
    assert region_path.exists()


def test_remove_takes_a_region_of_a_newer_version(vicinal: Vicinal, region_path: Path) -> None:
    region.create(region_path)
    with region_path.open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(4, "little"))
    assert vicinal("region", "remove", region_path).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_region_of_another_user(region_path: Path) -> None:
    region.create(region_path)
    os.seteuid(65534)
    try:
        with pytest.raises(VicinalError, match="permission denied"):
            region.inspect(region_path)
        with pytest.raises(VicinalError, match="permission denied"):
            region.create(region_path, existing=True)
        with pytest.raises(VicinalError, match="permission denied"):
            region.remove(region_path)
    finally:
        os.seteuid(0)
    os.chown(region_path, 65534, -1)
    faults = [str(finding) for finding in region.check(region_path) if finding.fault]
    assert len(faults) == 1
    assert "belongs to nobody" in faults[0]


@pytest.mark.parametrize("existing", [False, True])
def test_nobody_takes_half_a_header_for_a_region(
    region_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    """The last write is the magic. A process that attaches before it is refused."""
    found: list[bytes] = []

    class Watched(mmap.mmap):
        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key, value)
            found.append(self[0:8])

    if existing:
        region.create(region_path)
    monkeypatch.setattr(creation, "mmap", SimpleNamespace(mmap=Watched))
    region.create(region_path, existing=existing)
    magic = layout.MAGIC.to_bytes(8, "little")
    assert found[-1] == magic
    assert len(found) > 3
    assert set(found[:-1]) == {bytes(8)}
