"""Jobs whose ranks are processes of two users, through the region of a broker."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from broker_support import OTHER_USERS, Broker, as_user, serving, until
from command_support import CHECKOUT, Vicinal, error_line, made
from launch_support import (
    GUARD_SECONDS,
    LAUNCH_RANKS,
    MPIS,
    SCRIBBLE_SECONDS,
    SEED,
    compile_for_each_mpi,
    end_soak,
    package_path,
    wait_for,
)

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob, region_name
from vicinal.monitoring.sampling import Sampler, host_regions
from vicinal.mpi.environment import mpi_environment, mpi_prefix
from vicinal.mpi.job import Job
from vicinal.mpi.preloading import heap_library
from vicinal.region.opening import Purpose, fetch
from vicinal.region.states import SlotState

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start these processes")

HOSTILE_USER = 54323
PARTS = ("everything", "header", "members", "tables", "rings", "arenas", "cut", "punch")
MPI_PARTS = ("members", "tables", "punch")
"""As in test_hostile.py: parts that forge messages are left out."""
VICTIM_SECONDS = 2.0

WITHOUT_CHECK_OF_USERS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PMIX_MCA_psec": "none",
    "PMIX_MCA_gds": "hash",
}
"""Open MPI's launcher takes only ranks of its own user, unless it is told not to ask for users."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    users = f"{OTHER_USERS[0]}-{HOSTILE_USER}"
    with serving("--allow-uid", users, "--members", "24") as started:
        yield started


@pytest.fixture(scope="module")
def two_user_programs() -> Iterator[dict[str, dict[str, Path]]]:
    """Programs for each MPI, by their names, where every user can run them."""
    with tempfile.TemporaryDirectory(prefix="vicinal-ranks-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        sources = {
            "report": LAUNCH_RANKS,
            "exchange": Path(__file__).with_name("hostile_ranks.c"),
            "soak": CHECKOUT / "programs/soak.c",
        }
        compiled = {}
        for each, source in sources.items():
            directory = Path(name, each)
            directory.mkdir(mode=0o755)
            compiled[each] = compile_for_each_mpi(source, directory)
        yield compiled


def mpi_command(mpi: str, *program: object, container: Sequence[str] = ()) -> list[str]:
    """A launcher's command with two ranks, each of another user and perhaps in a container."""
    command = [str(mpi_prefix(mpi) / "bin" / "mpiexec")]
    if mpi == "openmpi":
        command.append("--oversubscribe")
    words = [*container, *map(str, program)]
    one, other = (["-n", "1", *as_user(user)[:-1], *words] for user in OTHER_USERS)
    return [*command, *one, ":", *other]


def mpi_variables(mpi: str, name: str) -> dict[str, str]:
    kept = {each: value for each, value in os.environ.items() if each[:3] != "FI_"}
    return {
        **kept,
        **mpi_environment(mpi, region=name),
        **WITHOUT_CHECK_OF_USERS,
        "HOME": "/tmp",
        "MPIR_CVAR_NOLOCAL": "1",
        "VICINAL_NET": "off",
        "VICINAL_PEER_TIMEOUT": "1",
    }


def _exchange(mpi: str, broker: Broker, command: list[str]) -> None:
    """Run two ranks that check what they exchange."""
    done = subprocess.run(
        command,
        env=mpi_variables(mpi, broker.name),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ranks=2 ") == done.stdout.count(" wrong=0 ") == 2


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_of_two_users_exchange_messages(
    broker: Broker, two_user_programs: dict[str, dict[str, Path]], mpi: str
) -> None:
    _exchange(mpi, broker, mpi_command(mpi, two_user_programs["report"][mpi], "report"))
    state = region.inspect(broker.name)
    pairs = {(each.sender, each.receiver) for each in state.connections if each.bytes > 1 << 20}
    assert len(pairs) == 2


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_in_rootless_containers_of_two_users(
    broker: Broker, two_user_programs: dict[str, dict[str, Path]], mpi: str
) -> None:
    """In user namespaces with users of their own, on a read-only root, without capabilities."""
    container = ["bwrap", "--unshare-all", "--share-net", "--uid", "1234", "--cap-drop", "ALL"]
    container += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--"]
    if mpi == "openmpi":  # it wants a directory for its session
        container[-1:] = ["--tmpfs", "/var/tmp", "--setenv", "TMPDIR", "/var/tmp", "--"]
    program = two_user_programs["report"][mpi]
    _exchange(mpi, broker, mpi_command(mpi, program, "report", container=container))
    assert _messages(broker) > 40


def test_the_command_runs_a_job_in_the_region_of_a_broker(
    broker: Broker, two_user_programs: dict[str, dict[str, Path]], vicinal: Vicinal
) -> None:
    program = two_user_programs["report"]["mpich"]
    done = vicinal("run", "-n", 2, "--region", broker.name, "--paths", program, "report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" wrong=0 ") == 2
    assert done.stderr.count(" region ") >= 2
    shown = vicinal("paths", "--region", broker.name)
    assert shown.stdout.count(" region ") >= 2
    line = error_line(vicinal("run", "-n", 25, "--region", broker.name, program, "report"))
    assert "is full: 24 of 24 member slots are free and the job has 25 ranks: serve" in line


def test_the_job_of_a_broker_s_region_is_found(
    broker: Broker, two_user_programs: dict[str, dict[str, Path]]
) -> None:
    words = ["run", "-n", "2", "--region", broker.name]
    program = [str(two_user_programs["exchange"]["mpich"]), "3", str(SEED)]
    job = subprocess.Popen(
        [sys.executable, "-m", "vicinal", *words, *program],
        env=os.environ | {"PYTHONPATH": package_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sampler = Sampler(host_regions)
    found = set[int]()

    def is_found() -> bool:
        jobs = sampler.take().jobs
        found.update(each.ranks for each in jobs if each.region.path.startswith("socket:"))
        return 2 in found

    try:
        until(lambda: job.poll() is not None or is_found())
        _, errors = job.communicate(timeout=GUARD_SECONDS)
    finally:
        job.kill()
    assert job.returncode == 0, errors
    assert 2 in found


@pytest.mark.parametrize(("mpi", "program"), [("mpich", "soak"), ("openmpi", "exchange")])
def test_a_job_does_not_notice_that_its_broker_is_killed(
    broker: Broker, two_user_programs: dict[str, dict[str, Path]], mpi: str, program: str
) -> None:
    """Open MPI's windows have a file for one user, so only MPICH's ranks run the soak.

    Its ranks have their large buffers in the region's heaps, which reserve pages as they use them.
    """
    heap = {"LD_PRELOAD": heap_library()} if program == "soak" else {}
    job = subprocess.Popen(
        mpi_command(mpi, two_user_programs[program][mpi], "3", str(SEED)),
        env=mpi_variables(mpi, broker.name) | heap,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: job.poll() is not None or _messages(broker) > 100)
        server = broker.server
        assert server is not None
        broker.process.kill()
        broker.process.wait()
        until(server.children)
        server.kill()  # the supervisor now; its server stays
        assert job.poll() is None
        output, errors = job.communicate(timeout=GUARD_SECONDS)
        # A newcomer gets the memory in which the job was.
        state = region.inspect(broker.name)
        first, reserved = state.header.first_bytes, state.reserved_bytes
        assert len(state.members) >= 2
    finally:
        job.kill()
        job.communicate()
        _end_remaining(broker)
    if program == "soak":
        assert job.returncode == 0, errors
        assert json.loads(output)["sent"] > 100
        assert reserved > first
    else:  # the first rank that ends may end the other
        assert "errors=0" in output, errors
        assert not re.search(r"errors=[1-9]", output)


def _messages(broker: Broker) -> int:
    return sum(each.messages for each in region.inspect(broker.name).connections)


def test_members_leave_the_region_of_a_broker_and_come_back(broker: Broker) -> None:
    """They ask the broker again, once a second. Its socket is in the nodes of `vicinal run`."""
    place = f"{EXCHANGE}/{region_name()}"
    with EphemeralCluster(2, regions=[(broker.path, Path(place).name)]) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        program = str(CHECKOUT / "build/programs/mpich/soak")
        job = Job(
            [program, str(4 * GUARD_SECONDS), str(SEED)],
            2,
            region=f"socket:{place}",
            environment={"VICINAL_WINDOWS": "off"},  # windows in the region would keep members
        )
        with (
            tempfile.TemporaryFile() as output,
            RunningJob(job, cluster, stdout=output) as running,
        ):
            until(lambda: _messages(broker) > 200)
            (state,) = running.region_states()
            assert state.brokered
            assert state.header.id == region.inspect(broker.name).header.id
            left = region.leave(broker.name, timeout=GUARD_SECONDS)
            assert (left.moved, left.troubles) == (2, ())
            region.attach(broker.name)
            until(lambda: len(_joined(broker)) == 2)
            until(lambda: _messages(broker) > 200)
            end_soak(running)
            assert running.wait(GUARD_SECONDS) == 0


def _joined(broker: Broker) -> list[region.Member]:
    members = region.inspect(broker.name).members
    return [each for each in members if each.state is SlotState.JOINED and each.alive]


def _end_remaining(broker: Broker) -> None:
    """End a broker whose first process was killed."""
    for each in psutil.process_iter(["cmdline"]):
        if str(broker.path) in (each.info["cmdline"] or []):
            each.terminate()
    until(lambda: not broker.path.exists())


def scribble(build: Path, broker: Broker, part: str) -> None:
    """As a member of a third user, write nonsense into the region, or take its memory away."""
    memory = fetch(str(broker.path), Purpose.JOIN)
    file = f"/proc/self/fd/{memory}"
    seconds = [str(SCRIBBLE_SECONDS), str(SEED)]
    command = [str(build / "tests/hostile/scribbler"), file, *seconds, part]
    if part == "punch":
        length = os.fstat(memory).st_size
        command = ["fallocate", "--punch-hole", "--offset", "0", "--length", str(length), file]
    try:
        done = subprocess.run(
            [*as_user(HOSTILE_USER), *command],
            pass_fds=[memory],
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD_SECONDS,
        )
    finally:
        os.close(memory)
    if part == "cut":
        assert "cannot be truncated" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.fixture(params=["release", pytest.param("asan", marks=pytest.mark.long)])
def build(request: pytest.FixtureRequest) -> Path:
    return made(request.param)


@pytest.mark.parametrize("part", PARTS)
def test_endpoints_of_two_users_outlive_a_member_of_a_third(
    build: Path, broker: Broker, part: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name[:3] != "FI_"} | {
        "FI_PROVIDER_PATH": str(build / "provider"),
        "VICINAL_REGION": broker.name,
        "VICINAL_PEER_TIMEOUT": "0.2",
        "ASAN_OPTIONS": "detect_leaks=0",  # other providers of libfabric leak
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    victims = [
        subprocess.Popen(
            [*as_user(user), build / "tests/hostile/victim", "2", str(VICTIM_SECONDS), str(SEED)],
            env=environment,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for user in OTHER_USERS
    ]
    try:
        for victim in victims:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
        scribble(build, broker, part)
        said = [victim.communicate(timeout=GUARD_SECONDS) for victim in victims]
    finally:
        for victim in victims:
            victim.kill()
            victim.communicate()
    for victim, (output, errors) in zip(victims, said, strict=True):
        # The provider may report each fault in one line. The victim and the sanitizers must print
        # nothing.
        ours = ("vicinal: error: ", "vicinal: warning: ")
        assert [line for line in errors.splitlines() if not line.startswith(ours)] == []
        assert victim.returncode == 0
        assert len(re.findall(r"rank=\d messages=[1-9]\d* ", output)) == 2, output
    assert broker.process.poll() is None


@pytest.mark.parametrize(
    ("mpi", "part"),
    [
        pytest.param(
            mpi, part, marks=() if (mpi, part) == ("mpich", "members") else pytest.mark.long
        )
        for mpi in MPIS
        for part in MPI_PARTS
    ],
)
def test_an_mpi_job_of_two_users_outlives_a_member_of_a_third(
    broker: Broker,
    two_user_programs: dict[str, dict[str, Path]],
    tmp_path: Path,
    checkout: Path,
    mpi: str,
    part: str,
) -> None:
    output = tmp_path / "output"
    program = two_user_programs["exchange"][mpi]
    shell = '"$0" "$@"; echo status=$?; exit 0'
    with (
        output.open("wb") as stream,
        subprocess.Popen(
            mpi_command(mpi, "/bin/sh", "-c", shell, program, SCRIBBLE_SECONDS + 2),
            env=mpi_variables(mpi, broker.name),
            cwd="/",
            stdout=stream,
            stderr=subprocess.STDOUT,
        ) as job,
    ):
        try:
            wait_for(output, "ready", 2)
            scribble(checkout / "build/release", broker, part)
            job.wait(GUARD_SECONDS)
        finally:
            job.kill()
    statuses = [int(status) for status in re.findall(r"status=(\d+)", output.read_text())]
    assert not {139, 135, 134} & {*statuses}, output.read_text()  # SEGV, BUS, ABRT
