"""Regions in the files of memory modules: where they begin, and that all readers agree."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_support import Vicinal, error_line

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program, read_records
from vicinal.mpi.environment import Mpi, check_region_name
from vicinal.region import format as layout
from vicinal.region.detaching import mark_dead
from vicinal.region.format import SLOT, SlotState, dtype_of
from vicinal.region.module import (
    ALIGNMENT,
    DATA_OFFSET,
    INFO,
    INFO_OFFSET,
    SIGNATURE,
    checksum,
    info_block,
    region_offset,
)

MIB = 1 << 20


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        file.write(data)


def info(path: Path) -> np.void:
    block: np.void = np.frombuffer(path.read_bytes(), dtype_of(INFO), 1, INFO_OFFSET)[0]
    return block


def offset_of(path: Path) -> int:
    with path.open("rb") as file:
        return region_offset(file.fileno(), path.stat().st_size)


def fletcher(block: bytes) -> int:
    """The kernel's checksum, word by word."""
    low = high = 0
    for start in range(0, len(block), 4):
        low = low + int.from_bytes(block[start : start + 4], "little") & 0xFFFFFFFF
        high = high + low & 0xFFFFFFFFFFFFFFFF
    return high << 32 & 0xFFFFFFFFFFFFFFFF | low


def test_a_module_has_an_info_block_and_then_the_region(region_path: Path) -> None:
    made = region.create(region_path, members=3, for_nvdimm=True)
    status = region_path.stat()
    assert status.st_size % ALIGNMENT == 0
    assert status.st_blocks * 512 >= status.st_size
    assert status.st_size - DATA_OFFSET - ALIGNMENT < made.region_bytes
    block = info(region_path)
    assert bytes(block["signature"]) == SIGNATURE
    assert int(block["data_offset"]) == DATA_OFFSET
    assert int(block["align"]) == ALIGNMENT
    raw = bytearray(block.tobytes())
    stored = int(block["checksum"])
    raw[-8:] = bytes(8)
    assert stored == fletcher(bytes(raw))
    state = region.inspect(region_path)
    assert (state.offset, state.header.id, state.header.members) == (DATA_OFFSET, made.id, 3)
    assert region.check(region_path) == []


def test_the_info_block_is_like_a_kernels() -> None:
    """The block that Linux 6.1 wrote in a guest, for a module of 64 MiB made a devdax in sysfs."""
    theirs = np.zeros((), dtype_of(INFO))
    theirs["signature"] = SIGNATURE
    theirs["uuid"] = bytes.fromhex("ba797356c7794471960c44a2ada2afb0")
    theirs["major"], theirs["minor"], theirs["mode"] = 1, 4, 1
    theirs["data_offset"], theirs["pages"] = 2097152, 15872
    theirs["align"], theirs["page_bytes"], theirs["note_bytes"] = 2097152, 4096, 64
    assert checksum(theirs.tobytes()) == 17986712114974307120
    ours = np.frombuffer(info_block(64 * MIB), dtype_of(INFO))[0]
    for name in INFO.fields:
        assert name in ("uuid", "checksum") or ours[name] == theirs[name], name


def test_every_module_has_an_identity_of_its_own(region_path: Path) -> None:
    identities = set()
    for _ in range(3):
        with region.create(region_path, members=2, for_nvdimm=True):
            identities.add(bytes(info(region_path)["uuid"]))
    assert len(identities) == 3


def test_the_commands_know_where_it_begins(vicinal: Vicinal, region_path: Path) -> None:
    assert vicinal("region", "create", "--for-nvdimm", region_path).returncode == 0
    assert "begins at  2.0 MiB, a memory module" in vicinal("region", "show", region_path).stdout
    shown = json.loads(vicinal("region", "show", "--json", region_path).stdout)
    assert shown["offset"] == DATA_OFFSET
    assert vicinal("region", "check", region_path).returncode == 0
    assert vicinal("region", "remove", region_path).returncode == 0
    assert not region_path.exists()


@pytest.mark.parametrize("other", ["--for-guests", "--existing"])
def test_options_that_contradict_each_other(
    vicinal: Vicinal, region_path: Path, other: str
) -> None:
    line = error_line(vicinal("region", "create", "--for-nvdimm", other, region_path))
    assert "--for-nvdimm" in line
    assert not region_path.exists()


def test_a_module_that_a_guest_made_keeps_its_beginning(region_path: Path) -> None:
    """After `ndctl create-namespace --mode=devdax` in the guest, with page notes in the module."""
    region.create(region_path, members=2, for_nvdimm=True)
    with region_path.open("r+b") as file:
        file.truncate(32 * MIB)
    write(region_path, INFO_OFFSET + 56, (6 * MIB).to_bytes(8, "little"))
    write(region_path, DATA_OFFSET, bytes(layout.PAGE))
    before = info(region_path).tobytes()
    with pytest.raises(VicinalError, match=r"has 26[.]0 MiB and the region takes"):
        region.create(region_path, members=64, existing=True)
    made = region.create(region_path, members=2, existing=True)
    assert info(region_path).tobytes() == before
    state = region.inspect(region_path)
    assert (state.offset, state.header.id) == (6 * MIB, made.id)


def test_a_region_at_the_beginning_is_there_whatever_comes_after(region_path: Path) -> None:
    """The region's slot table lies where the info block would be, and any member may write it."""
    made = region.create(region_path, members=2, for_guests=True)
    with region_path.open("r+b") as file:
        file.truncate(8 * MIB)
    write(region_path, INFO_OFFSET, SIGNATURE)
    write(region_path, INFO_OFFSET + 56, DATA_OFFSET.to_bytes(8, "little"))
    assert offset_of(region_path) == 0
    with region_path.open("rb") as file:
        assert file.read(8) == layout.MAGIC.to_bytes(8, "little")
    assert made.members == 2


@pytest.mark.parametrize(
    ("offset", "pad"),
    [
        (0, 0),
        (4096, 0),
        (DATA_OFFSET + 1, 0),
        (8 * MIB, 0),
        (1 << 64 - 1, 0),
        ((1 << 64) - 4096, 0),
        (DATA_OFFSET, 6 * MIB),
        (DATA_OFFSET, (1 << 32) - 1),
        (DATA_OFFSET, 1),
    ],
)
def test_an_impossible_beginning_is_not_believed(region_path: Path, offset: int, pad: int) -> None:
    region.create(region_path, members=2, for_nvdimm=True)
    with region_path.open("r+b") as file:
        file.truncate(8 * MIB)
    write(region_path, INFO_OFFSET + 56, (offset & (1 << 64) - 1).to_bytes(8, "little"))
    write(region_path, INFO_OFFSET + 76, pad.to_bytes(4, "little"))
    assert offset_of(region_path) == 0
    with pytest.raises(VicinalError, match="is not a region"):
        region.inspect(region_path)


def test_a_dax_device_has_a_name() -> None:
    assert check_region_name("dax:/dev/dax0.0") == "dax:/dev/dax0.0"
    with pytest.raises(VicinalError, match="relative"):
        check_region_name("dax:dax0.0")


def test_a_device_of_a_guest_is_no_file(vicinal: Vicinal) -> None:
    assert "on the host" in error_line(vicinal("region", "check", "dax:/dev/dax0.0"))


# ---- with members, which map the file itself as containers on the host do ----


@pytest.fixture(scope="module")
def program(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("member") / "region_member"
    sources = sorted((checkout / "provider/region").glob("*.c"))
    compiler = ("cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread", f"-I{checkout / 'provider'}")
    main = checkout / "tests/python/support/region_member.c"
    subprocess.run([*compiler, main, *sources, "-o", program], check=True)
    return program


@pytest.fixture
def member(program: Path, region_path: Path) -> Iterator[subprocess.Popen[str]]:
    region.create(region_path, members=4, for_nvdimm=True)
    pipe = subprocess.PIPE
    arguments = [str(program), f"file:{region_path}"]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("joined ")
        yield process
        process.kill()


def words(path: Path, kind: np.dtype[np.void], offset: int, name: str) -> int:
    data = path.read_bytes()
    return int(np.frombuffer(data, kind, 1, DATA_OFFSET + offset)[0][name])


def test_a_member_on_the_host_is_seen_in_it(
    member: subprocess.Popen[str], region_path: Path, vicinal: Vicinal
) -> None:
    (seen,) = region.inspect(region_path).members
    assert (seen.pid, seen.condition) == (member.pid, "alive")
    claim = words(region_path, SLOT, layout.slot_offset(seen.slot), "claim")
    assert claim == seen.epoch << 32 | SlotState.JOINED
    assert "living members" in error_line(vicinal("region", "remove", region_path))


def test_the_managers_words_are_written_where_members_look(
    member: subprocess.Popen[str], region_path: Path
) -> None:
    (seen,) = region.inspect(region_path).members
    assert seen.pid == member.pid
    region.detach(region_path, timeout=0.1)
    assert region.inspect(region_path).members[0].detached
    requested = words(region_path, SLOT, layout.slot_offset(seen.slot), "requested_route")
    assert requested == seen.epoch << 32 | 1
    assert mark_dead(region_path, seen.hostname) == [seen.slot]
    assert region.inspect(region_path).members[0].condition == "dead"


def test_an_mpi_job_runs_in_one(region_path: Path, vicinal: Vicinal) -> None:
    """The job runs on this host, whose processes need no module."""
    region.create(region_path, members=4, for_nvdimm=True)
    verify = [mpi_program(Mpi.MPICH, "verify"), "--only", "sizes", "--rounds", "1"]
    done = vicinal("run", "-n", "2", "--mpi", "mpich", "--region", f"file:{region_path}", *verify)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(done.stdout)
    assert (record["errors"], record["messages"] > 0) == (0, True)
    state = region.inspect(region_path)
    assert sum(each.messages for each in state.connections) > 0
