"""Guests that end unexpectedly: what is reported, and that nothing is left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from guest_support import BOUND, wait_until
from process_support import name_of

import vicinal.cluster.nodes.vm.pair
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.image.building import GuestImage, build_image
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.qemu import choice as guest_qemu_choice
from vicinal.labs.programs import mpi_program
from vicinal.launch.guest_job import RunningGuestJob
from vicinal.mpi.environment import Mpi
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import STANDARD

SHARED = Path("/dev/shm")


def run_directories(process: int) -> list[Path]:
    """Files that guests of a process have there; other processes may run guests too."""
    return list(SHARED.glob(f"vicinal-guests-{process}-*"))


@pytest.mark.parametrize("mpi", STANDARD)
def test_a_guest_that_dies_ends_the_job(mpi: Mpi) -> None:
    """The manager's report ends it. By the guest's silence it would take two hours."""
    end_job_by_power_failure(mpi, peer_timeout=7200, watched=True)


def test_a_guest_that_dies_is_missed_without_a_manager() -> None:
    end_job_by_power_failure(Mpi.MPICH, peer_timeout=5)


def test_a_host_that_dies_is_missed_over_verbs() -> None:
    """Nobody tells the other guest, which plays another host with a region of its own."""
    end_job_by_power_failure(Mpi.MPICH, peer_timeout=5, network=GuestNetwork.VERBS)


def end_job_by_power_failure(
    mpi: Mpi,
    peer_timeout: int,
    network: GuestNetwork = GuestNetwork.VIRTIO,
    *,
    watched: bool = False,
) -> None:
    """A guest is killed while messages flow; the other side must neither hang nor continue.

    Only a job that is `watched` hears of it from this host.
    """
    program = str(mpi_program(mpi, "latency"))
    job = Job(
        program=[program, "--sizes", "8", "--seconds", "3600"],
        ranks=2,
        mpi=mpi,
        environment={"VICINAL_PEER_TIMEOUT": str(peer_timeout)},
    )
    with (
        GuestPair(network=network) as pair,
        tempfile.TemporaryFile() as errors,
        RunningGuestJob(
            job, pair, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        ) as running,
    ):
        wait_until(
            "messages flow",
            lambda: any(
                any(each.messages > 100 for each in state.connections)
                or any(each.messages > 100 for each in state.beyond)
                for state in pair.inspect_all()
            ),
        )
        pair.guests[1].kill()
        killed = time.monotonic()
        if watched:
            with pytest.raises(VicinalError, match="guest guest1: QEMU ended"):
                running.wait(BOUND)
        # The ranks end the job by themselves.
        assert running.launcher.wait(BOUND) != 0
        print(f"{network}: the job ended {time.monotonic() - killed:.1f} s after the guest")
        errors.seek(0)
        # In any call: mostly the receive, and a barrier between two measurements.
        said = re.search(b"(MPI|internal)_[A-Z][a-z]+", errors.read())
        assert said, "the rank got no error from its MPI library"
        if network is GuestNetwork.VIRTIO:
            assert "guest1" in {m.hostname for m in pair.inspect().members if m.alive is False}
        wait_until(
            "no rank is left in the other guest",
            lambda: program not in pair.guests[0].run(["ps"]).stdout,
        )
    assert run_directories(os.getpid()) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_manager_is_ended(ending: signal.Signals) -> None:
    program = str(mpi_program(Mpi.MPICH, "latency"))
    manager = subprocess.Popen(
        [sys.executable, "-m", "vicinal", "guests", "run", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ports = f"vicinal-guests-{manager.pid}-*/guest?.port"
        wait_until("both guests started", lambda: len(list(SHARED.glob(ports))) == 2)
        children = psutil.Process(manager.pid).children(recursive=True)
        assert sum("qemu" in name_of(child) for child in children) == 2
        os.kill(manager.pid, ending)
        assert manager.wait(BOUND) != 0
        wait_until("all processes ended", lambda: not any(map(psutil.Process.is_running, children)))
        wait_until("the directory is gone", lambda: not run_directories(manager.pid))
    finally:
        manager.kill()
        manager.wait()


def test_a_guest_that_does_not_boot_shows_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.cpio"
    empty.write_bytes(bytes(512))

    def broken_image(say: Callable[[str], None], network: GuestNetwork) -> GuestImage:
        return replace(build_image(say, network), files=empty)

    monkeypatch.setattr(vicinal.cluster.nodes.vm.pair, "build_image", broken_image)
    pair = GuestPair()
    with pytest.raises(VicinalError, match=r"guest0: QEMU ended.*Kernel panic") as raised:
        pair.open()
    assert Path(raised.value.remedy.split()[-1]).is_file()
    assert run_directories(os.getpid()) == []


def test_a_host_without_qemu_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    guest_qemu_choice.find_qemu.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(VicinalError, match="install qemu-system-x86"):
        GuestPair().open()
