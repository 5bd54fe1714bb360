"""MPI jobs on ephemeral clusters: both MPI libraries, every path, and errors."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from command_support import Vicinal, error_line
from launch_support import (
    GUARD_SECONDS,
    MPI_DIAGONAL,
    MPIS,
    ONE_MPI,
    REGION,
    check_reports,
    long_unless,
    package_path,
    parse_reports,
    square,
    unprivileged_python,
    wait_for,
)

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.job import Job

PATHS = ("network", REGION)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    """One cluster for many jobs. Each job must leave the cluster as it was."""
    with EphemeralCluster(nodes=2) as opened:
        yield opened
        assert opened.ended_nodes() == []


# --- the command ---------------------------------------------------------------------------


# test_run_leftovers.py has ranks in nodes of their own, and also checks what a job leaves.


WITHOUT_HOSTS = """
mkdir "$0"
for name in passwd group nsswitch.conf ld.so.cache; do
    [ ! -f /etc/$name ] || cp -L /etc/$name "$0"
done
mount --bind "$0" /etc
exec "$@"
"""
"""Shell text that runs a command on a host whose /etc has no file `hosts`."""


def on_a_host_without_hosts(etc: Path, *words: object) -> subprocess.CompletedProcess[str]:
    unshared = ["unshare", "--map-root-user", "--mount", "sh", "-ec", WITHOUT_HOSTS, str(etc)]
    return subprocess.run(
        [*unshared, sys.executable, "-m", "vicinal", *map(str, words)],
        env=os.environ | {"PYTHONPATH": package_path(), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("mpi", MPIS)
def test_a_host_without_etc_hosts(programs: dict[str, Path], tmp_path: Path, mpi: str) -> None:
    """Its nodes know no names. MPICH's daemons reach the launcher by its address."""
    result = on_a_host_without_hosts(tmp_path / "etc", "run", "-n", 2, programs[mpi], "report")
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node0", "node1"])


def test_nodes_that_are_containers_say_that_they_need_etc_hosts(tmp_path: Path) -> None:
    result = on_a_host_without_hosts(tmp_path / "etc", "doctor", "nodes")
    if "no runtime that makes nodes" in result.stdout:
        pytest.skip("no container runtime is installed")
    assert "this host has no /etc/hosts" in result.stdout, result.stderr
    assert "create the file: `touch /etc/hosts`" in result.stdout


@pytest.mark.parametrize(("mpi", "path"), square(MPIS, PATHS, MPI_DIAGONAL))
def test_ranks_in_the_same_node_talk_as_well(
    vicinal: Vicinal, programs: dict[str, Path], mpi: str, path: str
) -> None:
    result = vicinal("run", "-n", 3, "--nodes", 2, "--path", path, programs[mpi], "report")
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node0", "node0", "node1"])


@pytest.mark.parametrize("words", [("-np", 2), ("-np=2",), ("-n2",)], ids=str)
def test_the_number_of_ranks_is_said_as_to_mpirun(
    vicinal: Vicinal, programs: dict[str, Path], words: tuple[object, ...]
) -> None:
    program = programs["mpich"]
    result = vicinal("run", *words, "--path", "shared-memory", program, "report")
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node0", "node0"])


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_the_mpis_own_shared_memory_works_in_one_node(
    vicinal: Vicinal, programs: dict[str, Path], mpi: str
) -> None:
    result = vicinal("run", "-n", 2, "--path", "shared-memory", programs[mpi], "report")
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node0", "node0"])


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_the_three_streams_are_the_programs(programs: dict[str, Path], mpi: str) -> None:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "vicinal", "run", "-n", "2", "--path", "network"),
            *(str(programs[mpi]), "echo"),
        ],
        input="first\nsecond\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_SECONDS,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    assert result.stdout == "first\nsecond\n"
    assert "errors\n" in result.stderr


@pytest.mark.parametrize("path", [REGION])
@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_python_programs_run_with_either_mpi(
    vicinal: Vicinal, tmp_path: Path, mpi: str, path: str
) -> None:
    script = tmp_path / "total.py"
    script.write_text(
        "import sys\n"
        "from mpi4py import MPI\n"
        "total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)\n"
        "name, host = MPI.Get_library_version().split()[0], MPI.Get_processor_name()\n"
        "sys.stdout.write(f'{total} {name} {host}\\n')\n"  # one write: ranks share the stream
    )
    result = vicinal("run", "-n", 2, "--mpi", mpi, "--path", path, sys.executable, script)
    assert result.returncode == 0, result.stderr
    name = {"mpich": "MPICH", "openmpi": "Open"}[mpi]
    assert sorted(result.stdout.splitlines()) == [f"3 {name} node0", f"3 {name} node1"]


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("pinned", [[], ["--bind"]], ids=["plain", "bind"])
def test_variables_reach_the_ranks_as_they_are(
    vicinal: Vicinal, tmp_path: Path, mpi: str, pinned: list[str]
) -> None:
    """Names and contents are arbitrary. Shells in between drop some variables."""
    odd = {
        "A.B": "dot",
        "BASH_FUNC_module%%": "() {  echo a\n}",
        "-u": "PATH",
        "quo'te\"d $HOME": "`id` $HOME \\ 'x'",
        "PLAIN": "two\nlines\n",
        "EMPTY": "",
        "n-o": "",
    }
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "print(json.dumps({n: os.environ.get(n) for n in sys.argv[1:]}))\n"
        "assert not [n for n in os.environ if n.startswith('VICINAL_PASSED')]\n"
    )
    options = ("run", "-n", 2, "--mpi", mpi, "--path", "network", *pinned)
    result = vicinal(*options, sys.executable, script, "PATH", *odd, **odd)
    assert result.returncode == 0, result.stderr
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [{name: each[name] for name in odd} for each in told] == [odd, odd]
    assert all(each["PATH"] for each in told)


def test_arguments_of_the_program_stay_the_programs(vicinal: Vicinal) -> None:
    result = vicinal("run", "-n", 1, "--path", "network", "echo", "--paths", "-n", "a  b")
    assert result.stdout == "--paths -n a  b\n"


def test_more_ranks_than_cores_get_a_note(vicinal: Vicinal, programs: dict[str, Path]) -> None:
    ranks = len(os.sched_getaffinity(0)) + 1
    result = vicinal("run", "-n", ranks, "--path", "network", programs["mpich"], "report")
    assert result.returncode == 0
    assert len(parse_reports(result.stdout)) == ranks
    assert result.stderr.startswith(f"vicinal: note: {ranks} ranks share {ranks - 1} cores")


@pytest.mark.parametrize(
    ("mpi", "path"), square(MPIS, PATHS, [("mpich", "network"), ("openmpi", "region")])
)
def test_an_ordinary_user_runs_jobs(programs: dict[str, Path], mpi: str, path: str) -> None:
    python = unprivileged_python()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        program = shutil.copy(programs[mpi], directory)
        result = subprocess.run(
            [*python, "-m", "vicinal", "run", "-n", "2", "--path", path, program],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=GUARD_SECONDS,
            env=os.environ | {"PYTHONPATH": package_path()},
        )
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node0", "node1"])


@pytest.mark.parametrize("path", [REGION])
def test_a_program_may_have_any_name(
    vicinal: Vicinal, programs: dict[str, Path], tmp_path: Path, path: str
) -> None:
    """The region's label has room for 64 bytes of the name."""
    name = "[bold]" + 40 * "\N{CYRILLIC SMALL LETTER ZHE}"
    program = os.fsdecode(os.fsencode(tmp_path / name) + b"\xff")
    shutil.copy(programs["mpich"], program)
    result = vicinal("run", "-n", 2, "--path", path, "--paths", program, "report")
    assert result.returncode == 0, result.stderr
    assert f"Paths of {name[:35]} " in result.stderr


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("./missing", "there is no program ./missing"),
        ("", "the program has no name"),
        ("missing-program", "there is no program missing-program in $PATH"),
        ("./script", "not executable: make it executable: chmod +x ./script"),
        ("./text", "not executable: name a program, or a script that begins with #!"),
        ("./ring.c", "the file is source code; compile it: mpicc ./ring.c -o ./ring"),
        ("./ring.f90", "compile it: mpifort ./ring.f90 -o ./ring"),
        ("./ring.py", "name its interpreter: python3 ./ring.py"),
        (".", "directory"),
    ],
)
def test_a_program_that_cannot_run_is_named(
    vicinal: Vicinal, tmp_path: Path, program: str, says: str
) -> None:
    for name in ("text", "ring.c", "ring.f90", "ring.py"):
        (tmp_path / name).write_text("text")
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert says in error_line(vicinal("run", "-n", 2, "--path", "network", program))


def test_a_program_that_nodes_cannot_see_is_named(vicinal: Vicinal, region_path: Path) -> None:
    region_path.touch(mode=0o755)
    line = error_line(vicinal("run", "-n", 2, "--path", "network", region_path))
    assert "the nodes cannot see" in line


def test_a_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -P -m vicinal run -n 1 true'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the current directory no longer exists: change to another" in error_line(done)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-n", "0"], '--ranks is "0", and must be 1 or more'),
        (["-n", "2", "--nodes", "0"], '--nodes is "0", and must be 1 or more'),
        (["-n", "2", "--mpi", "lam"], "lam"),
        (["-n", "2", "--path", "air"], "air"),
        (["-n", "2", "--nodes", "3"], "3 nodes are more than 2 ranks"),
        (["-n", "2", "--path", "shared-memory", "--nodes", "2"], "does not connect 2 nodes"),
        (["-n", "2", "--path", "network", "--region", "file:/dev/shm/x"], "takes no region"),
        (["-n", "513"], "a job of 513 ranks has no room in a region, which has at most 512"),
        (["-n", "2", "--region", "nonsense"], "does not name a region"),
        (["-n", "2", "--region", "pci:0000:00:04.0"], "device of a guest"),
        (["-n", "2", "--region", "file:/dev/shm/vicinal-missing"], "there is no region"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    vicinal: Vicinal, options: list[str], says: str
) -> None:
    assert says in error_line(vicinal("run", *options, "true"))


def test_a_foreign_file_is_not_taken_for_a_region(vicinal: Vicinal, region_path: Path) -> None:
    region_path.write_bytes(b"something else" * 1000)
    line = error_line(vicinal("run", "-n", 2, "--region", f"file:{region_path}", "true"))
    assert "is not a region" in line


def test_a_region_with_too_few_slots_is_full(vicinal: Vicinal, region_path: Path) -> None:
    assert vicinal("region", "create", region_path, "--members", 2).returncode == 0
    line = error_line(vicinal("run", "-n", 3, "--region", f"file:{region_path}", "true"))
    assert "is full: 2 of 2 member slots are free and the job has 3 ranks: create a region" in line


def test_an_unreadable_region_is_told(region_path: Path, vicinal: Vicinal) -> None:
    assert vicinal("region", "create", region_path).returncode == 0
    done = subprocess.run(
        [
            *(*unprivileged_python(), "-m", "vicinal", "run", "-n", "2"),
            *("--region", f"file:{region_path}", "/bin/true"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    if os.geteuid() != 0:
        pytest.skip("only root can try as another user")
    assert "permission denied" in error_line(done)


def test_the_time_limit_ends_a_job(vicinal: Vicinal, programs: dict[str, Path]) -> None:
    options = ["-n", 2, "--path", "network", "--timeout", 1]
    line = error_line(vicinal("run", *options, programs["mpich"], "late"))
    assert "did not end within 1 s" in line


@pytest.mark.parametrize("path", [REGION])
def test_the_time_limit_names_ranks_that_never_joined(
    vicinal: Vicinal, programs: dict[str, Path], path: str
) -> None:
    options = ["-n", 3, "--nodes", 3, "--path", path, "--timeout", 3]
    line = error_line(
        without_notes(vicinal("run", *options, "--mpi", "mpich", programs["mpich"], "late"))
    )
    assert "rank 1, 2 never joined the region" in line


# --- watching jobs -------------------------------------------------------------------------


@pytest.mark.parametrize(("mpi", "path"), square(MPIS, PATHS, MPI_DIAGONAL))
def test_one_cluster_serves_many_jobs(
    cluster: EphemeralCluster, programs: dict[str, Path], mpi: str, path: str
) -> None:
    for _ in range(2):
        job = Job([str(programs[mpi]), "report"], ranks=2, path=path)
        done = launch(job, cluster, timeout=GUARD_SECONDS)
        assert done.returncode == 0, done.stderr
        check_reports(done.stdout, ["node0", "node1"])
        assert cluster.processes() == []
        assert list(cluster.exchange.glob("region-*")) == []


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_pinned_rank_has_one_core_of_its_own(
    cluster: EphemeralCluster, programs: dict[str, Path], mpi: str
) -> None:
    cores = len(os.sched_getaffinity(0))
    job = Job([str(programs[mpi]), "wait"], ranks=min(2, cores), path="network", pin=True)
    with started(job, cluster) as running:
        used = [process.cpu_affinity() for process in running.ranks().values()]
    assert all(len(cpus or []) == 1 for cpus in used)
    assert len({tuple(cpus or []) for cpus in used}) == min(2, cores)
    job = Job([str(programs[mpi]), "report"], ranks=2, path="network")
    reports = parse_reports(launch(job, cluster, timeout=GUARD_SECONDS).stdout)
    assert [report.cpus for report in reports] == [cores, cores]


@pytest.mark.parametrize(
    ("mpi", "path"), square(MPIS, PATHS, [("mpich", "network"), ("openmpi", "region")])
)
def test_a_killed_rank_ends_the_job(
    cluster: EphemeralCluster, programs: dict[str, Path], mpi: str, path: str
) -> None:
    with started(Job([str(programs[mpi]), "wait"], ranks=2, path=path), cluster) as running:
        ranks = running.ranks()
        assert sorted(ranks) == [0, 1]
        assert {process.name() for process in ranks.values()} == {programs[mpi].name}
        ranks[1].kill()
        assert running.wait(GUARD_SECONDS) != 0
    assert cluster.processes() == []


def test_a_stopped_rank_is_killed_with_its_job(
    cluster: EphemeralCluster, programs: dict[str, Path]
) -> None:
    job = Job([str(programs["mpich"]), "wait"], ranks=2, path="network")
    with started(job, cluster) as running:
        running.ranks()[0].suspend()
        with pytest.raises(VicinalError, match="did not end"):
            running.wait(0.5)
    assert cluster.processes() == []


def test_a_node_that_ends_ends_the_job(programs: dict[str, Path]) -> None:
    with EphemeralCluster(nodes=2) as cluster:
        job = Job([str(programs["mpich"]), "wait"], ranks=2, path="network")
        with started(job, cluster) as running:
            inits = psutil.Process(cluster.head_process).children()
            lost = cluster.nodes[1].pid_namespace
            [init] = [
                init for init in inits if str(Path(f"/proc/{init.pid}/ns/pid").readlink()) == lost
            ]
            init.kill()
            # The launcher may notice first.
            with suppress(VicinalError):
                assert running.wait(GUARD_SECONDS) != 0
        deadline = time.monotonic() + GUARD_SECONDS
        # The node's first process ends only after all other processes. The job may end earlier.
        while not cluster.ended_nodes():
            assert time.monotonic() < deadline, "nobody noticed that a node ended"
            time.sleep(0.02)
        assert cluster.ended_nodes() == ["node1"]


def test_signals_reach_the_ranks(cluster: EphemeralCluster, tmp_path: Path) -> None:
    script = tmp_path / "trap.sh"
    script.write_text("trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.1; done")
    with (tmp_path / "output").open("wb+") as output:
        job = Job(["/bin/sh", str(script)], ranks=1, mpi="mpich", path="network")
        with RunningJob(job, cluster, stdout=output) as running:
            wait_for(tmp_path / "output", "ready")
            running.forward(signal.SIGUSR1)
            assert running.wait(GUARD_SECONDS) == 0
    assert "got it" in (tmp_path / "output").read_text()


@pytest.mark.parametrize(("program", "ranks"), [([], 1), (["/bin/true"], 0)])
def test_an_impossible_job_is_refused(program: list[str], ranks: int) -> None:
    with pytest.raises(VicinalError):
        Job(program, ranks=ranks)


@contextmanager
def started(job: Job, cluster: EphemeralCluster) -> Iterator[RunningJob]:
    """A job whose rank 0 has said that all ranks have met."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        with os.fdopen(writer, "wb") as output:
            running = RunningJob(job, cluster, stdout=output)
        with running:
            assert lines.readline() == "ready\n"
            yield running


def without_notes(
    result: subprocess.CompletedProcess[str],
) -> subprocess.CompletedProcess[str]:
    lines = result.stderr.splitlines(keepends=True)
    result.stderr = "".join(line for line in lines if not line.startswith("vicinal: note: "))
    return result
