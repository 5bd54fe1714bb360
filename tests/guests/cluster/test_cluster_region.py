"""Clusters whose file chooses the region's device: with interrupts, or as a memory module."""

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from domain_support import private_daemon
from guest_support import wait_until
from vms_scenario import NODES, Trial, verify

from vicinal.cluster.manager import open_nodes
from vicinal.cluster.nodes.vm.guests import VmGuests
from vicinal.cluster.plan.state import cluster_directory
from vicinal.cluster.vm.qemu.doorbell.running import LastingServer
from vicinal.host.shared_device import SLOW
from vicinal.labs.programs import mpi_program
from vicinal.launch.guest_job import run_in_guests
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi
from vicinal.region import inspect

ROUNDS = 12
GAP_MILLISECONDS = 400
DEVICES = "cat /sys/bus/pci/devices/*/device; ls /dev/dax*"


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with (
        private_daemon() as uri,
        tempfile.TemporaryDirectory(prefix="vicinal-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("LIBVIRT_DEFAULT_URI", uri)
        patch.setenv("XDG_STATE_HOME", f"{name}/state")
        trial = Trial(Path(name))
        try:
            yield trial
        finally:
            trial.call("down", trial.name)
        assert trial.left() == [], trial.left()


def test_a_blocked_rank_is_woken_by_the_interrupt(
    trial: Trial, compile_mpi: Callable[[Mpi, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_PROGRESS", "block")
    region = "members: 8, heap: 4M, device: ivshmem-doorbell"
    trial.call("up", trial.write(count=2, region=region))
    check_woken(trial, Mpi.MPICH, compile_mpi(Mpi.MPICH, "woken"))
    check_heap(trial, Mpi.MPICH, compile_mpi(Mpi.MPICH, "placed"), "/resource2")
    assert "its region has a doorbell" in trial.refused("save", trial.name)

    # Running VMs need no server. The next `up` starts one for VMs that start.
    server = LastingServer(cluster_directory(trial.name) / "doorbell")
    assert server.process is not None
    os.kill(server.process, signal.SIGKILL)
    wait_until("the server has ended", lambda: server.process is None)
    assert "> doorbell/main" in trial.call("plan", trial.file, status=2).stdout
    assert "doorbell/main: stopped" in trial.call("status", trial.name, status=1).stdout
    check_woken(trial, Mpi.OPENMPI, compile_mpi(Mpi.OPENMPI, "woken"))
    assert trial.call("up", trial.file).stderr.endswith(": 1 started, 5 unchanged\n")
    assert server.serves(trial.region)
    trial.call("stop", trial.name)
    assert server.process is None


def check_woken(trial: Trial, mpi: Mpi, program: Path) -> None:
    """A rank that waits for each message until it sleeps is woken by an interrupt."""
    job = ("run", "--cluster", trial.name, "-n", "2", "--mpi", mpi.value, "--timeout", "600")
    done = trial.call(*job, program, str(ROUNDS), str(GAP_MILLISECONDS))
    (told,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"{mpi}: {told['interrupts']} interrupts for {ROUNDS} messages")
    assert told["wrong"] == 0
    # A message may also find it awake, because an MPI library sleeps for at most 4 ms. With TCG it
    # was awake for up to 7 of 12 messages. Without working interrupts the count is 0.
    assert told["interrupts"] > 1


def check_heap(trial: Trial, mpi: Mpi, program: Path, region_file: str) -> None:
    """If requested, the memory that malloc gives the ranks is in the region."""
    job = ("run", "--cluster", trial.name, "-n", "2", "--mpi", mpi.value, "--timeout", "600")
    for options, ending in ((("--heap", "region"), region_file), ((), "")):
        done = trial.call(*job, *options, program)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert [each["wrong"] for each in told] == [0, 0]
        assert all(each["file"].endswith(ending) for each in told), told
        assert all(bool(each["file"]) is bool(ending) for each in told), told


def test_a_memory_module_is_found_and_is_no_slower_than_memory(
    trial: Trial, compile_mpi: Callable[[Mpi, str], Path]
) -> None:
    """The file differs from the present cluster: region and VMs are created anew."""
    trial.call("up", trial.write(count=2, region="members: 8, heap: 4M, device: nvdimm"))
    for node in NODES[:2]:
        *devices, module = trial.call("exec", node, "sh", "-c", DEVICES).stdout.split()
        assert "0x1110" not in devices
        assert module == "/dev/dax0.0"
    verify(trial, str(mpi_program(Mpi.MPICH, "verify")), NODES[:2])
    check_heap(trial, Mpi.OPENMPI, compile_mpi(Mpi.OPENMPI, "placed"), "/dev/dax0.0")

    # The guest's provider measures how the memory is mapped.
    guests = open_nodes(trial.name)
    assert isinstance(guests, VmGuests)
    program = [str(mpi_program(Mpi.MPICH, "latency")), "--sizes", "8", "--seconds", "0.1"]
    job = Job(program=program, ranks=2, mpi=Mpi.MPICH, environment={"FI_LOG_LEVEL": "info"})
    done = run_in_guests(job, guests)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"region dax:/dev/dax0\.0 takes ([0-9.]+) times", done.stdout + done.stderr)
    assert len(found) == 2, done.stderr
    assert all(0 < float(times) < SLOW for times in found), found
    assert "its region is a memory module" in trial.refused("save", trial.name)
    a_vm_that_dies_ends_the_job(trial, program[0])


def a_vm_that_dies_ends_the_job(trial: Trial, program: str) -> None:
    job = ("run", "--cluster", trial.name, "-n", "2", "--timeout", "600")
    with ThreadPoolExecutor() as pool:
        refused = pool.submit(trial.refused, *job, program, "--sizes", "8", "--seconds", "3600")
        before = inspect(trial.region).members
        wait_until("a job has begun", lambda: inspect(trial.region).members != before)
        time.sleep(2.0)
        trial.hypervisor.lookupByName(f"vicinal-{trial.owner}-{NODES[1]}").destroy()
        said = refused.result()
    assert f"{NODES[1]}: it ended while the job ran" in said
    assert "its console ends with: " in said
    assert f"{NODES[1]}   stopped" in trial.call("status", trial.name, status=1).stdout
