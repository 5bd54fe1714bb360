"""srun --mpi=pmix --vicinal=FILE with a real Slurm: Open MPI in containers of the job.

Open MPI 5 has its own PMIx. Slurm's server is the server of Debian's libpmix-dev.
"""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from launch_support import GUARD_SECONDS, compile_for_each_mpi
from process_support import signal_all
from slurm_option_support import OptionHosts, become, wait_until

from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

OTHER_USER = 1
"""The user daemon, in Debian."""
FILE = """
name: lab
nodes:
  - name: node
    count: {count}
    runtime: {runtime}
    mounts: [work]
region:
  members: 16
"""


@pytest.fixture(autouse=True, scope="module")
def pmix(hosts: OptionHosts) -> None:
    if "pmix" not in hosts.at_head("srun", "--mpi=list").stdout:
        pytest.skip("this Slurm has no PMIx: on Debian, apt-get install libpmix-dev")


@pytest.fixture(scope="module")
def four(hosts: OptionHosts) -> Path:
    """A cluster file with four containers."""
    return hosts.cluster_file("four.yaml", FILE.format(count=4, runtime="crun"))


@pytest.fixture(scope="module")
def placed(hosts: OptionHosts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """placed_ranks.c, compiled in a directory that nodes and other users see."""
    compiled = compile_for_each_mpi(
        Path(__file__).with_name("placed_ranks.c"), tmp_path_factory.mktemp("programs")
    )
    return Path(shutil.copy(compiled["openmpi"], hosts.directory / "work"))


@pytest.fixture(scope="module")
def pairs(hosts: OptionHosts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """pair_ranks.c, compiled in the same directory."""
    source = Path(__file__).resolve().parents[1] / "support/pair_ranks.c"
    compiled = compile_for_each_mpi(source, tmp_path_factory.mktemp("pairs"))
    return {
        mpi: Path(shutil.copy(program, hosts.directory / "work"))
        for mpi, program in compiled.items()
    }


def shown(text: str) -> list[dict[str, Any]]:
    """The records that ranks printed, by rank."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"')]
    return sorted(lines, key=lambda line: line["rank"])


@pytest.mark.parametrize(
    ("user", "hosts_of_job", "runtime"),
    [
        pytest.param(0, 1, "crun", marks=pytest.mark.long),
        (OTHER_USER, 2, "bubblewrap"),
    ],
)
def test_ranks_of_open_mpi_talk_through_their_region(
    clean: OptionHosts, pairs: dict[str, Path], user: int, hosts_of_job: int, runtime: str
) -> None:
    """Hosts are connected by the network. Ranks of MPICH run in the same nodes.

    The library that corrects Open MPI's accumulates of pairs is preloaded for both.
    """
    file = clean.cluster_file(f"{runtime}.yaml", FILE.format(count=4, runtime=runtime))
    open_mpi, mpich = (mpi_program(mpi, "verify") for mpi in (Mpi.OPENMPI, Mpi.MPICH))
    kept = clean.directory / "work/region"
    keep = f'cat "${{VICINAL_REGION#file:}}" >{kept}'
    script = (
        f"srun --mpi=pmix {open_mpi} --max-size 4096 && srun -N1 -n1 sh -c '{keep}' && "
        f"srun --mpi=pmi2 {mpich} --max-size 64 && "
        f"srun --mpi=pmix -N1 -n2 {pairs['openmpi']} && srun --mpi=pmi2 -N1 -n2 {pairs['mpich']}"
    )
    spread = (f"-N{hosts_of_job}", f"--ntasks-per-node={4 // hosts_of_job}")
    job = ("salloc", "-Q", f"--vicinal={file}", *spread, "sh", "-c")
    result = clean.at_head(*become(user), *job, f"cd / && {script}")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines.count("0 wrong") == 2, lines
    checks = [json.loads(line) for line in lines if line.startswith('{"')]
    assert len(checks) > 20, result.stdout
    assert not [each for each in checks if each["errors"]]
    state = clean.shown_region(kept)
    sent = {(each["sender"], each["receiver"]): each["messages"] for each in state["connections"]}
    assert max(sent.values()) > 1000, sent


@pytest.mark.long
def test_ranks_share_memory_in_their_node_alone(
    clean: OptionHosts, four: Path, placed: Path
) -> None:
    """Eight ranks on two hosts, two in each node. Some nodes have the names of Slurm's hosts."""
    job = (f"--vicinal={four}", "--mpi=pmix", "--chdir=/", "-N2", "--ntasks-per-node=4")
    result = clean.at_head("srun", *job, placed)
    assert result.returncode == 0, result.stderr
    assert shown(result.stdout) == [
        {
            "rank": rank,
            "size": 8,
            "node": f"node{rank // 2}",
            "together": 2,
            "put": (rank - 1) % 8,
            "sum": 1 + 2,
        }
        for rank in range(8)
    ]


@pytest.mark.long
def test_two_steps_at_once_have_servers_of_their_own(
    clean: OptionHosts, four: Path, placed: Path
) -> None:
    """Both steps run in the same nodes, as a user who is not root."""
    step = f"srun --overlap --mpi=pmix -n4 {placed}"
    script = f"cd /; {step} >work-1 & {step} >work-2 & wait"
    script = script.replace("work-", f"{clean.directory}/work/said-")
    job = ("salloc", "-Q", f"--vicinal={four}", "-wnode0", "-n4", "sh", "-c", script)
    result = clean.at_head(*become(OTHER_USER), *job)
    assert result.returncode == 0, result.stderr
    for number in (1, 2):
        said = shown((clean.directory / f"work/said-{number}").read_text())
        assert [(each["node"], each["together"]) for each in said] == [
            (f"node{rank}", 1) for rank in range(4)
        ]


LOOK = """
import os, re, socket
def reaches(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
mine = {n: v for n, v in os.environ.items() if n.startswith("PMIX_SERVER_URI")}
ports = {int(v.rpartition(":")[2]) for n, v in mine.items() if n != "PMIX_SERVER_URI9"}
print(len(ports), *map(reaches, ports))
print(mine["PMIX_SERVER_URI9"], reaches(22), reaches(int(os.environ["OTHER"])))
"""


def test_nothing_else_of_the_host_is_reached(clean: OptionHosts, four: Path) -> None:
    """A node reaches no listener of the host, no other step's server, and none from a variable."""
    clean.at_head("rm", "-f", clean.directory / "work/uri")
    allocate = ("salloc", "-Q", "-wnode0", "-n2")
    inner = f"env | grep PMIX_SERVER_URI2= >{clean.directory}/work/uri; exec sleep 600"
    with clean.start(*allocate, "srun", "--mpi=pmix", "-n1", "sh", "-c", inner) as other:
        uri = clean.directory / "work/uri"
        wait_until(lambda: uri.exists() and uri.read_text().endswith("\n"))
        port = uri.read_text().strip().rpartition(":")[2]
        result = clean.at_head(
            *("srun", f"--vicinal={four}", "--mpi=pmix", "-wnode0", "-n1", "--chdir=/"),
            *("python3", "-c", LOOK),
            PMIX_SERVER_URI9="own;tcp4://127.0.0.1:22",
            OTHER=port,
        )
        assert clean.at_head("scancel", "--state=RUNNING", "--user=root").returncode == 0
        other.wait(GUARD_SECONDS)
    assert result.stdout.splitlines() == [
        "1 True",
        "own;tcp4://127.0.0.1:22 False False",
    ], result.stderr


# --- ends ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_rank_that_gives_up_ends_the_others(clean: OptionHosts, four: Path, placed: Path) -> None:
    job = (f"--vicinal={four}", "--mpi=pmix", "--chdir=/", "-wnode0", "-n4")
    result = clean.at_head("srun", *job, placed, "abort")
    assert result.returncode == 7, result.stderr


def sleeping(hosts: OptionHosts) -> list[psutil.Process]:
    return hosts.sleeping("602")


@pytest.mark.long
@pytest.mark.parametrize("victim", ["task", "slurmstepd"])
def test_nothing_is_left_of_tasks_that_are_killed(
    clean: OptionHosts, four: Path, victim: str
) -> None:
    """The process that forwards is Slurm's process for the task, and is called slurmstepd."""
    job = (f"--vicinal={four}", "--mpi=pmix", "-wnode0", "-n2", "--chdir=/", "--job-name=dies")
    with clean.start("srun", *job, "sleep", "602") as running:
        wait_until(lambda: len(sleeping(clean)) == 2)
        stepd = clean.running("node0", "slurmstepd")
        signal_all(sleeping(clean) if victim == "task" else stepd, signal.SIGKILL)
        if victim == "slurmstepd":
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            running.kill()
        running.wait(GUARD_SECONDS)
    wait_until(lambda: not sleeping(clean))
    wait_until(lambda: not clean.running("node0", "slurmstepd"))
