"""Jobs for guests, as far as tests without guests can check them; tests/guests has real guests."""

from pathlib import Path
from types import SimpleNamespace
from typing import Self, cast

import pytest
from command_support import Vicinal, error_line
from launch_support import MPIS, REGION

from vicinal.base.errors import VicinalError
from vicinal.cli import run
from vicinal.cluster.nodes.vm.guests import VmGuests
from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.guest.commands import SSH_FAILED
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.launch.guest_job import RunningGuestJob, job_command
from vicinal.mpi.environment import provider_directory
from vicinal.mpi.job import Job


def pair(network: GuestNetwork = GuestNetwork.VIRTIO) -> GuestPair:
    """The part of two guests that a command line needs."""
    guests = [SimpleNamespace(name=name) for name in ("guest0", "guest1")]
    everything = SimpleNamespace(has=lambda path: isinstance(path, Path))
    return cast("GuestPair", SimpleNamespace(guests=guests, image=everything, network=network))


@pytest.mark.parametrize("path", ["network", REGION])
@pytest.mark.parametrize("mpi", MPIS)
def test_the_providers_variables_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, mpi: str, path: str
) -> None:
    """Variables that describe this host are not passed on."""
    for name, text in {
        "VICINAL_PEER_TIMEOUT": "7",
        "FI_VICINAL_PROGRESS": "block",
        "VICINAL_SINGLE_COPY": "off",
        "VICINAL_ALLOW_SLOW": "",
        "VICINAL_REGION": "file:/dev/shm/here",
        "FI_VICINAL_RANK": "3",
    }.items():
        monkeypatch.setenv(name, text)
    job = Job(["/bin/true"], 2, mpi=mpi, path=path, environment={"VICINAL_SINGLE_COPY": "on"})
    command, environment = job_command(job, pair())
    handed = {"VICINAL_PEER_TIMEOUT": "7", "FI_VICINAL_PROGRESS": "block"}
    handed["VICINAL_SINGLE_COPY"] = "on"  # the job's own value wins
    assert {name: text for name, text in environment.items() if "VICINAL_" in name} == handed
    if mpi == "openmpi":  # its launcher passes on only variables that the command line names
        assert handed.keys() <= set(command)


def test_what_a_job_preloads_stays_beside_what_its_mpi_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vicinal.mpi.preloading.library_to_preload", lambda file: f"/lib/{file}")
    job = Job(["/bin/true"], 2, mpi="openmpi", environment={"LD_PRELOAD": "/own.so"})
    command, _ = job_command(job, pair())
    assert "LD_PRELOAD=/own.so:/lib/libvicinal-pairs.so:/lib/libvicinal-mpi.so" in command


@pytest.mark.parametrize("mpi", MPIS)
def test_guests_that_are_hosts_reach_each_other_by_verbs(mpi: str) -> None:
    command, environment = job_command(
        Job(["/bin/true"], 4, mpi=mpi, path="region"), pair(GuestNetwork.VERBS)
    )
    assert environment["VICINAL_NET"] == "verbs;ofi_rxm"
    assert environment["FI_PROVIDER"] == "vicinal,verbs"
    provider, own = map(Path, environment["FI_PROVIDER_PATH"].split(":"))
    assert provider == provider_directory()
    assert (own / "libverbs-fi.so").is_file()
    assert environment["FI_OFI_RXM_USE_SRX"] == "1"
    # Soft-RoCE's completion queues have at most 32767 entries: 256 for each peer.
    assert 256 * int(environment["FI_UNIVERSE_SIZE"]) <= 32767
    if mpi == "openmpi":
        assert {"VICINAL_NET", "FI_UNIVERSE_SIZE", "FI_OFI_RXM_USE_SRX"} <= set(command)
    else:
        assert environment["MPIR_CVAR_NOLOCAL"] == "1"


def test_the_network_between_hosts_is_only_for_the_region() -> None:
    job = Job(["/bin/true"], 4, mpi="mpich", path="network")
    _, environment = job_command(job, pair(GuestNetwork.VERBS))
    assert environment["FI_PROVIDER"] == "tcp"
    assert not {"VICINAL_NET", "MPIR_CVAR_NOLOCAL"} & environment.keys()


class FakeGuests:
    """The part of VMs, or of two guests, that a job needs that prints something and ends."""

    guests = (SimpleNamespace(name="guest0", command=lambda *_: ["true"], run=lambda *_: None),)
    alone = ()
    image = SimpleNamespace(has=lambda path: isinstance(path, Path))
    network = GuestNetwork.VIRTIO

    def __init__(self, **_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def enter(self) -> None: ...


@pytest.fixture
def no_pairs_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise VicinalError("the library is not there", "build it")

    monkeypatch.setattr("vicinal.mpi.preloading.library_to_preload", missing)


@pytest.mark.parametrize(("mpi", "count"), [("openmpi", 1), ("mpich", 0)])
@pytest.mark.usefixtures("no_pairs_library")
def test_a_job_in_vms_says_that_accumulates_may_be_wrong(mpi: str, count: int) -> None:
    guests = cast("VmGuests", FakeGuests())
    with RunningGuestJob(Job(["/bin/true"], 1, mpi=mpi, path="network"), guests) as job:
        notes = [each for each in job.notes if "accumulates of pairs" in each]
    assert len(notes) == count


def test_the_end_of_the_first_guest_is_told_although_its_connection_ends_before_it() -> None:
    class Ending(FakeGuests):
        guests = (
            SimpleNamespace(
                name="guest0",
                command=lambda *_: ["sh", "-c", "exit 255"],
                run=lambda *_: None,
                is_lost=lambda status: status == SSH_FAILED,
            ),
        )
        asked = 0

        def check(self) -> None:
            self.asked += 1
            if self.asked == 3:
                raise VicinalError("guest0: it ended", "boot it")

    guests = cast("VmGuests", Ending())
    job = Job(["/bin/true"], 1, mpi="mpich", path="network")
    with (
        RunningGuestJob(job, guests) as running,
        pytest.raises(VicinalError, match="guest0: it ended"),
    ):
        running.wait(60)


@pytest.mark.usefixtures("no_pairs_library")
def test_guests_run_says_so_too_and_why_there_is_no_table_of_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vicinal.cluster.nodes.vm.pair.GuestPair", FakeGuests)
    options = ["--mpi", "openmpi", "--path", "network", "--paths"]
    assert run(["guests", "run", *options, "/bin/true"]) == 0
    said = capsys.readouterr().err
    assert "may be wrong in Open MPI: the library is not there" in said
    assert "every pair of ranks used the path network" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["run", "--mpi", "intel", "true"], "the guests do not have Intel MPI: choose --mpi mpich"),
        (["run", "--mpi", "openmpi41", "true"], "the guests do not have Open MPI 4.1"),
        (["run", "--path", "shared-memory", "true"], "does not connect guests"),
        (["demo", "--mpi", "intel"], "the guests do not have Intel MPI: choose --mpi mpich"),
        (
            ["demo", "--output", "/dev/null/x"],
            "this user may not write to /dev/null/x: name another directory",
        ),
    ],
)
def test_what_guests_cannot_do_is_refused_before_any_boots(
    vicinal: Vicinal, options: list[str], says: str
) -> None:
    """The refusal also comes before the line that announces the start."""
    assert says in error_line(vicinal("guests", *options))


def test_guests_without_a_provider_do_not_boot(vicinal: Vicinal, tmp_path: Path) -> None:
    options = ["run", "--mpi", "mpich", "true"]
    line = error_line(vicinal("guests", *options, VICINAL_PROVIDER_DIR=str(tmp_path)))
    assert f"there is no libvicinal-fi.so in {tmp_path}" in line
