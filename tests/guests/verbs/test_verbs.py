"""Guests that play two hosts: a region inside each, and RDMA on a virtual function between them.

QEMU emulates the SR-IOV card, and RDMA is Linux's own over Ethernet (Soft-RoCE). The tests show
that the parts work together, and nothing about their speed.
"""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from guest_support import BOUND

from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.image.layout import HOME
from vicinal.cluster.vm.qemu.guest import Guest
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import VERBS_CORE, run_in_guests
from vicinal.mpi.environment import Mpi
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.libraries import STANDARD
from vicinal.mpi.traffic import NETWORK_PATH, REGION_PATH, JobTraffic, job_traffic, merge_traffic
from vicinal.region import RegionState

RANKS = 4
SIZE_MOST = 128 << 10  # above 64 KiB a receiver reads the sender's memory
ROCE_PAYLOAD = 1024
"""Bytes that fit into a packet: the largest power of two that Ethernet carries."""

COUNTERS = "/sys/class/infiniband/rxe0/ports/1/hw_counters"


def verify(hosts: GuestPair, mpi: Mpi, **variables: str) -> CompletedJob:
    """Check messages of every kind; stderr has the provider's report about its network."""
    program = str(mpi_program(mpi, "verify"))
    job = Job(
        program=[program, "--max-size", str(SIZE_MOST), "--rounds", "1"],
        ranks=RANKS,
        mpi=mpi,
        environment={
            "FI_LOG_LEVEL": "info",
            "FI_LOG_PROV": "vicinal",
            "FI_LOG_SUBSYS": "ep_ctrl",
            **variables,
        },
    )
    done = run_in_guests(job, hosts, timeout=BOUND)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    records = read_records(done.stdout)
    assert {"sizes", "order", "collectives", "any-source", "probe"} <= {
        record["check"] for record in records
    }
    assert [record["first_error"] for record in records if record["errors"]] == []
    assert sum(record["bytes"] for record in records) > 10 * SIZE_MOST
    return done


def members(hosts: GuestPair) -> list[set[tuple[int, int]]]:
    """Slot and epoch of all members that joined each region so far."""
    return [{(m.slot, m.epoch) for m in state.members} for state in hosts.inspect_all()]


def traffic_since(hosts: GuestPair, before: list[set[tuple[int, int]]]) -> JobTraffic:
    """What members that joined since have sent, as `vicinal paths` reports it."""

    def new(state: RegionState, old: set[tuple[int, int]]) -> RegionState:
        joined = tuple(m for m in state.members if (m.slot, m.epoch) not in old)
        slots = {member.slot for member in joined}
        return replace(
            state,
            members=joined,
            beyond=tuple(sent for sent in state.beyond if sent.sender in slots),
        )

    states = zip(hosts.inspect_all(), before, strict=True)
    return merge_traffic(job_traffic(new(state, old)) for state, old in states)


def counters(guest: Guest) -> dict[str, int]:
    """The counters of the RDMA device."""
    lines = guest.run(["sh", "-c", f"cd {COUNTERS} && grep . *"]).stdout.split()
    return {name: int(count) for name, count in (line.split(":") for line in lines)}


@pytest.fixture
def queues(hosts: GuestPair, tmp_path: Path) -> str:
    """queues.c in both guests, to be preloaded."""
    library = tmp_path / "queues.so"
    command = [
        "gcc",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
    ]
    command += ["-o", str(library), str(Path(__file__).parents[1] / "support/queues.c")]
    subprocess.run(command, check=True, timeout=120)
    for guest in hosts.guests:
        guest.copy_in(library, f"{HOME}/{library.name}")
    return f"{HOME}/{library.name}"


def test_the_rdma_device_is_on_a_virtual_function(hosts: GuestPair) -> None:
    for guest in hosts.guests:
        name = guest.run(["cat", "/sys/class/infiniband/rxe0/parent"]).stdout.strip()
        done = guest.run(["readlink", f"/sys/class/net/{name}/device/physfn"])
        assert done.returncode == 0, f"{name} is no virtual function"
        driver = guest.run(["readlink", f"/sys/class/net/{name}/device/driver"]).stdout
        assert driver.strip().endswith("/igbvf")


@pytest.mark.parametrize("mpi", STANDARD)
def test_one_job_uses_the_region_inside_and_verbs_across(
    hosts: GuestPair, mpi: Mpi, queues: str
) -> None:
    before = members(hosts)
    counted = [counters(guest) for guest in hosts.guests]
    done = verify(hosts, mpi, LD_PRELOAD=queues)

    # Nothing must be moderated: see docs/decisions/0017.
    made = re.findall(r"a queue of verbs (\w+) events", done.stderr)
    assert len(made) >= RANKS
    assert set(made) == {"without"}

    # The provider's own report, with the name that the core provider gives itself.
    said = re.findall(r"peers beyond the region are reached by (\S+) on (\S+)", done.stderr)
    assert len(said) >= RANKS
    assert set(said) == {(VERBS_CORE, "rxe0")}

    traffic = traffic_since(hosts, before)
    assert [traffic.hostnames[rank] for rank in range(RANKS)] == ["guest0"] * 2 + ["guest1"] * 2
    assert traffic.beyond == [], "somebody sent to a peer that is in neither region"
    talked = [pair for pair in traffic.pairs if pair.sender != pair.receiver]
    inside = {(0, 1), (1, 0), (2, 3), (3, 2)}
    for pair in talked:
        near = (pair.sender, pair.receiver) in inside
        assert pair.path == (REGION_PATH if near else NETWORK_PATH), pair
    # Each rank sends to the next. The MPI library's collectives decide about other pairs.
    assert {(0, 1), (1, 2), (2, 3), (3, 0)} <= {(pair.sender, pair.receiver) for pair in talked}

    for guest, earlier in zip(hosts.guests, counted, strict=True):
        sent = sum(
            pair.bytes
            for pair in talked
            if pair.path == NETWORK_PATH and traffic.hostnames[pair.sender] == guest.name
        )
        now = counters(guest)
        assert sent > 0
        assert now["rdma_sends"] > earlier["rdma_sends"]
        assert now["sent_pkts"] - earlier["sent_pkts"] >= sent // ROCE_PAYLOAD


def test_memory_is_not_read_in_place_where_libfabric_may_not_know_it(hosts: GuestPair) -> None:
    """Its cache of registered memory misses memory that some programs free: docs/decisions/0012."""
    copied = "large messages to peers outside the region are copied"
    assert copied in verify(hosts, Mpi.MPICH, FI_MR_CACHE_MONITOR="memhooks").stderr
    assert copied not in verify(hosts, Mpi.MPICH).stderr
