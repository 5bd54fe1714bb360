"""Guests whose region is a memory module: /dev/dax, mapped write-back, which the provider finds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guest_python import lend_python, run_python
from guest_support import BOUND

from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.image.layout import USER_ID
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.host.shared_device import SLOW
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import job_command, run_in_guests
from vicinal.mpi.environment import Mpi
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.libraries import STANDARD
from vicinal.region.format import Liveness
from vicinal.region.module import DATA_OFFSET

BOTH_WAYS = {("guest0", "guest1"), ("guest1", "guest0")}

SEE = "cat /sys/bus/pci/devices/*/device; ls -l /dev/dax*; cat /sys/bus/dax/devices/*/size"

both_mpis = pytest.mark.parametrize("mpi", STANDARD)


@pytest.fixture(scope="module")
def pair() -> Iterator[GuestPair]:
    with GuestPair(region_device=RegionDevice.NVDIMM, say=print) as running:
        print(running.choice)
        yield running


def run(pair: GuestPair, mpi: Mpi, *program: str) -> CompletedJob:
    done = run_in_guests(Job(program=list(program), ranks=2, mpi=mpi), pair, timeout=BOUND)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done


def test_the_guest_has_a_module_and_no_ivshmem_device(pair: GuestPair) -> None:
    for guest in pair.guests:
        script = (
            "cat /sys/bus/pci/devices/*/device; ls -l /dev/dax*; cat /sys/bus/dax/devices/*/size"
        )
        *devices, module, size = guest.run(["sh", "-c", script]).stdout.splitlines()
        assert "0x1110" not in devices
        assert module.startswith("crw-rw----")
        assert module.split()[2:4] == ["root", "mpi"]
        assert int(size) == pair.region.stat().st_size - DATA_OFFSET
    assert pair.inspect().offset == DATA_OFFSET


@both_mpis
def test_an_ordinary_user_names_the_provider_and_nothing_else(
    pair: GuestPair, mpi: Mpi, compile_mpi: Callable[[Mpi, str], Path]
) -> None:
    job = Job(program=[str(compile_mpi(mpi, "whoami"))], ranks=2, mpi=mpi)
    _, environment = job_command(job, pair)
    assert environment["FI_PROVIDER"] == "vicinal"
    assert [name for name in environment if name.startswith("VICINAL_")] == []
    done = run(pair, mpi, *job.program)
    ranks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [rank["host"] for rank in ranks] == ["guest0", "guest1"]
    assert {rank["user"] for rank in ranks} == {USER_ID}
    assert {rank["region"] for rank in ranks} == {"unset"}


@both_mpis
def test_every_answer_is_right_and_came_through_the_module(pair: GuestPair, mpi: Mpi) -> None:
    before = {(member.slot, member.epoch) for member in pair.inspect().members}
    program = str(mpi_program(mpi, "verify"))
    done = run(pair, mpi, program, "--max-size", "262144", "--rounds", "1")
    records = read_records(done.stdout)
    assert len(records) > 1
    assert all(record["errors"] == 0 for record in records), records
    assert sum(record["messages"] for record in records) > 0
    state = pair.inspect()
    new = {m.slot: m for m in state.members if (m.slot, m.epoch) not in before}
    assert {member.liveness for member in new.values()} == {Liveness.HEARTBEAT}
    talks = {
        (new[each.sender].hostname, new[each.receiver].hostname)
        for each in state.connections
        if each.sender in new and each.receiver in new and each.messages > 0 and each.bytes > 0
    }
    assert talks >= BOTH_WAYS


def test_the_doctor_finds_the_region_and_how_fast_it_is(pair: GuestPair, tmp_path: Path) -> None:
    guest = pair.guests[1]
    lend_python(guest, tmp_path / "lent.tar")
    done = run_python(guest, "doctor_inside.py", "ivshmem", timeout=BOUND)
    assert done.returncode == 0, done.stderr
    (finding,) = map(json.loads, done.stdout.splitlines())
    print(finding["text"])
    assert finding["status"] == "pass"
    assert "/dev/dax0.0" in finding["text"]
    assert finding["facts"]["region"]
    assert finding["facts"]["members"] == pair.inspect().header.members
    assert 0 < finding["facts"]["times_slower"] < SLOW
