"""Inspection of regions in which real members of the C code live, leave and die."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_support import Vicinal, error_line

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.region import format as layout
from vicinal.region.format import SlotState

MEMBERS = 4


@pytest.fixture(scope="module")
def program(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("member") / "region_member"
    sources = sorted((checkout / "provider/region").glob("*.c"))
    subprocess.run(
        [
            *("cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread", f"-I{checkout / 'provider'}"),
            checkout / "tests/python/support/region_member.c",
            *sources,
            *("-o", program),
        ],
        check=True,
    )
    return program


class Job:
    """Members of one region, each a process."""

    def __init__(self, program: Path, path: Path) -> None:
        self.program = program
        self.path = path
        self.processes: list[subprocess.Popen[str]] = []

    def join(self, rank: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self.program, f"file:{self.path}"],
            env=os.environ | {"VICINAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        answer = process.stdout.readline()
        assert answer.startswith("joined "), process.communicate()[1]
        return process

    def leave(self, process: subprocess.Popen[str]) -> None:
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL


@pytest.fixture
def job(program: Path, region_path: Path) -> Iterator[Job]:
    region.create(region_path, members=MEMBERS)
    job = Job(program, region_path)
    yield job
    for process in job.processes:
        process.kill()
        process.communicate(timeout=60)


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        file.write(data)


def section(slot: int) -> int:
    return layout.section_offset(slot, MEMBERS, region.DEFAULT_SECTION_BYTES)


def faults(path: Path) -> list[str]:
    return [str(finding) for finding in region.check(path) if finding.fault]


def test_living_members_are_seen(job: Job) -> None:
    processes = [job.join(rank) for rank in (7, 8)]
    state = region.inspect(job.path)
    assert [(member.slot, member.epoch) for member in state.members] == [(0, 1), (1, 1)]
    assert [member.rank for member in state.members] == [7, 8]
    assert [member.pid for member in state.members] == [process.pid for process in processes]
    assert {member.hostname for member in state.members} == {os.uname().nodename}
    assert {member.condition for member in state.members} == {"alive"}
    assert region.check(job.path) == []


def test_those_who_left_can_still_be_read(job: Job) -> None:
    job.leave(job.join(3))
    (member,) = region.inspect(job.path).members
    assert (member.condition, member.rank, member.alive) == ("left", 3, None)
    assert region.check(job.path) == []


def test_the_dead_are_found_and_replaced(job: Job, vicinal: Vicinal) -> None:
    job.kill(job.join(0))
    assert [member.condition for member in region.inspect(job.path).members] == ["dead"]
    assert error_line(vicinal("region", "check", job.path)).startswith(
        "vicinal: error: the member in slot 0 is dead"
    )
    for rank in range(1, MEMBERS + 1):
        job.join(rank)
    assert sorted(member.rank or 0 for member in region.inspect(job.path).members) == [1, 2, 3, 4]
    assert region.check(job.path) == []


@pytest.mark.parametrize("slot", [0, MEMBERS - 1])
def test_a_used_region_is_not_removed(job: Job, vicinal: Vicinal, slot: int) -> None:
    *before, process = [job.join(rank) for rank in range(slot + 1)]
    for other in before:
        job.leave(other)
    assert "living members" in error_line(vicinal("region", "remove", job.path))
    assert "living members" in error_line(
        vicinal("region", "create", "--existing", job.path, "--members", MEMBERS)
    )
    job.leave(process)
    assert vicinal("region", "remove", job.path).returncode == 0


def test_unless_it_is_forced(job: Job, vicinal: Vicinal) -> None:
    job.join(0)
    assert vicinal("region", "remove", "--force", job.path).returncode == 0
    assert not job.path.exists()


def test_a_descriptor_will_do(job: Job) -> None:
    job.join(0)
    fd = os.open(job.path, os.O_RDONLY)
    try:
        (member,) = region.inspect(fd).members
    finally:
        os.close(fd)
    assert member.alive


def test_a_killed_guest_is_dead_by_the_managers_verdict(job: Job) -> None:
    process = job.join(0)
    write(job.path, layout.verdicts_offset(MEMBERS), (1 << 32 | 1).to_bytes(8, "little"))
    assert [member.condition for member in region.inspect(job.path).members] == ["dead"]
    job.leave(process)


@contextmanager
def heart(path: Path, slot: int) -> Iterator[None]:
    """Count a heartbeat like a member in another virtual machine, from this process."""
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(0.02):
            count += 1
            write(path, section(slot) + 64, count.to_bytes(8, "little"))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_heartbeats_are_waited_for(region_path: Path) -> None:
    region.create(region_path, members=MEMBERS)
    for slot in (1, 2):
        record = np.zeros((), layout.SECTION)
        record["epoch"] = 5
        record["liveness"] = layout.Liveness.HEARTBEAT
        write(region_path, section(slot), record.tobytes())
        write(region_path, layout.slot_offset(slot), (5 << 32 | 2).to_bytes(8, "little"))
    with heart(region_path, 1):
        members = region.inspect(region_path, patience=2).members
        assert [(member.slot, member.alive) for member in members] == [(1, True), (2, False)]
    unwatched = region.inspect(region_path, patience=0).members
    assert [member.condition for member in unwatched] == ["unknown", "unknown"]


def connect(path: Path, sender: int, receiver: int, **fields: int) -> None:
    line = np.zeros((), layout.CONNECTION)
    for name, value in fields.items():
        line[name] = value
    offset = section(sender) + layout.connections_offset(MEMBERS) + receiver * layout.LINE
    write(path, offset, line.tobytes())


def sound_ring() -> dict[str, int]:
    return {"id": 77, "receiver_epoch": 1, "slots": 64, "ring": layout.arena_offset(MEMBERS)}


def test_connections_are_seen(job: Job, vicinal: Vicinal) -> None:
    job.join(10)
    job.join(11)
    connect(job.path, 0, 1, **sound_ring(), messages=1234, bytes=5 << 20)
    (connection,) = region.inspect(job.path).connections
    assert (connection.sender, connection.receiver) == (0, 1)
    assert (connection.messages, connection.bytes) == (1234, 5 << 20)
    assert region.check(job.path) == []

    shown = vicinal("region", "show", job.path).stdout
    assert "slot 0 (rank 10)" in shown
    assert "1,234" in shown
    assert "5.0 MiB" in shown
    document: dict[str, Any] = json.loads(vicinal("region", "show", "--json", job.path).stdout)
    assert document["connections"][0]["messages"] == 1234
    assert [member["condition"] for member in document["members"]] == ["alive", "alive"]
    assert document["header"]["members"] == MEMBERS


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 48},
        {"slots": 8},
        {"slots": 2048},
        {"slots": 0},
        {"ring": layout.arena_offset(MEMBERS) + 8},
        {"ring": layout.PAGE},
        {"ring": region.DEFAULT_SECTION_BYTES - 64},
        {"ring": (1 << 64) - 64},
    ],
)
def test_impossible_rings_are_faults(job: Job, wrong: dict[str, int]) -> None:
    job.join(0)
    connect(job.path, 0, 1, **sound_ring() | wrong)
    (fault,) = faults(job.path)
    assert "impossible ring" in fault


def test_a_section_of_another_epoch_is_a_fault(job: Job) -> None:
    job.join(0)
    write(job.path, section(0) + 8, (9).to_bytes(4, "little"))
    (fault,) = faults(job.path)
    assert "epoch 1 in its slot and 9 in its section" in fault


def set_home(path: Path, slot: int, region_id: str, home_slot: int, epoch: int) -> None:
    words = bytes.fromhex(region_id) + home_slot.to_bytes(4, "little") + epoch.to_bytes(4, "little")
    write(path, section(slot) + 32, words)


def test_where_a_member_is_first_is_shown(job: Job, vicinal: Vicinal) -> None:
    job.join(0)
    job.join(1)
    assert "first in" not in vicinal("region", "show", job.path).stdout
    set_home(job.path, 1, "0123456789abcdef" * 2, 3, 7)
    alone, other = region.inspect(job.path).members
    assert alone.home is None
    assert other.home == region.Home("0123456789abcdef" * 2, 3, 7)
    assert region.check(job.path) == []
    shown = vicinal("region", "show", job.path).stdout
    assert "first in" in shown
    assert "this region" in shown
    document: dict[str, Any] = json.loads(vicinal("region", "show", "--json", job.path).stdout)
    homes = [member["home"] for member in document["members"]]
    assert homes == [None, {"region": "0123456789abcdef" * 2, "slot": 3, "epoch": 7}]


@pytest.mark.parametrize(("home_slot", "epoch"), [(layout.MEMBERS_MAX, 1), (0, 0), (1, 1)])
def test_impossible_homes_are_faults(job: Job, home_slot: int, epoch: int) -> None:
    job.join(0)
    own = region.inspect(job.path).header.id
    set_home(job.path, 0, own if (home_slot, epoch) == (1, 1) else "11" * 16, home_slot, epoch)
    (fault,) = faults(job.path)
    assert "says that its home is slot" in fault


def test_two_that_say_they_are_one_are_a_fault(job: Job) -> None:
    job.join(0)
    job.join(1)
    job.join(2)
    for slot in (0, 2):
        set_home(job.path, slot, "11" * 16, 3, 7)
        write(job.path, section(slot), bytes(range(8)))
    (fault,) = faults(job.path)
    assert "slots 0 and 2 claim to be the same endpoint" in fault


def test_unknown_liveness_is_a_fault(job: Job) -> None:
    job.join(0)
    write(job.path, section(0) + 12, (3).to_bytes(4, "little"))
    (fault,) = faults(job.path)
    assert "unknown kind of liveness (3)" in fault


def test_an_unknown_slot_state_is_an_error(job: Job) -> None:
    write(job.path, layout.slot_offset(2), (1 << 32 | 7).to_bytes(8, "little"))
    with pytest.raises(VicinalError, match=r"slot 2 .* unknown state 7"):
        region.inspect(job.path)


def test_one_who_is_joining_is_mentioned(job: Job) -> None:
    write(job.path, layout.slot_offset(0), (1 << 32 | SlotState.CLAIMED).to_bytes(8, "little"))
    (finding,) = region.check(job.path)
    assert not finding.fault
    assert "has claimed the slot" in finding.message


def test_names_cannot_command_a_terminal(job: Job, vicinal: Vicinal) -> None:
    job.join(0)
    write(job.path, section(0) + 128, b"\x1b[31m[red]evil\r\n\xff".ljust(64, b"\0"))
    write(job.path, 64, b"\x07\x9b2J".ljust(64, b"\0"))
    state = region.inspect(job.path)
    assert state.members[0].hostname == "?[31m[red]evil??\N{REPLACEMENT CHARACTER}"
    assert "\x1b" not in vicinal("region", "show", job.path).stdout
