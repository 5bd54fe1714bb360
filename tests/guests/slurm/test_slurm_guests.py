"""srun --vicinal=FILE with a real Slurm: jobs whose tasks run in virtual machines.

The VMs are emulated without KVM. Each starts from a snapshot, which the first job makes.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import CHECKOUT
from launch_support import compile_for_each_mpi
from slurm_guests_support import FILE, begin, sleeping, vms
from slurm_option_support import PATIENCE, REGIONS, VICINAL, OptionHosts, wait_until

from vicinal.cluster.vm.snapshot.store import snapshots_directory
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

PLACED_RANKS = CHECKOUT / "tests/python/slurm/placed_ranks.c"


@pytest.fixture(scope="module")
def hosts() -> Iterator[OptionHosts]:
    with OptionHosts.opened() as opened:
        yield opened


@pytest.fixture
def clean(hosts: OptionHosts) -> Iterator[OptionHosts]:
    """Hosts without traces of jobs, before and after the test."""
    with hosts.clean():
        yield hosts


@pytest.fixture(scope="module")
def two(hosts: OptionHosts) -> Path:
    """The file of a cluster of two virtual machines."""
    return hosts.cluster_file("two.yaml", FILE.format(count=2))


def memories() -> dict[Path, str]:
    """Digests of the memory of each snapshot."""
    found = snapshots_directory().glob("*/memory")
    return {each: hashlib.sha256(each.read_bytes()).hexdigest() for each in found}


def test_tasks_run_in_vms_as_on_their_host(clean: OptionHosts, two: Path) -> None:
    """With arguments, variables, input and errors; the job ends as its failing task does."""
    script = (
        'read -r line; echo "$(hostname) $(id -un) $SLURM_PROCID $OWN $1 $line $(cat /root/said)"; '
        'echo "of $SLURM_PROCID" >&2; exit $((SLURM_PROCID == 3 ? 9 : 0))'
    )
    line = f"echo given | srun --vicinal={two} -wnode0 -n4 sh -c '{script}' sh 'a  word'"
    result = clean.at_head("sh", "-c", line, OWN="mine")
    assert result.returncode == 9, result.stderr
    said = sorted(
        (each.split(maxsplit=3) for each in result.stdout.splitlines()), key=lambda w: w[2]
    )
    assert said == [
        [f"node{rank // 2}", "mpi", str(rank), "mine a  word given told"] for rank in range(4)
    ]
    assert {f"of {rank}" for rank in range(4)} <= set(result.stderr.splitlines())


def test_ranks_in_vms_talk_through_their_region(clean: OptionHosts, two: Path) -> None:
    """Later steps find the VMs as earlier steps left them; their random numbers differ."""
    program = mpi_program(Mpi.MPICH, "verify")
    write = "dd if=/dev/urandom bs=1M count=2 2>/dev/null >big; cat big"
    steps = (
        f"srun --mpi=pmi2 {program} --max-size 65536",
        f"srun --mpi=pmi2 sh -c '{write}' | wc -c",
        "srun sh -c 'od -An -tx4 -N16 /dev/urandom; wc -c <big'",
    )
    job = ("salloc", "-Q", f"--vicinal={two}", "-wnode0", "-n2", "sh", "-c", " && ".join(steps))
    result = clean.at_head(*job)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    checks = [json.loads(each) for each in lines if each.startswith('{"')]
    assert len(checks) > 10, result.stdout
    assert not [each for each in checks if each["errors"]]
    written, *rest = lines[len(checks) :]
    assert written == str(4 << 20)
    random = [each for each in rest if each != str(2 << 20)]
    assert len(rest) == 4
    assert len(set(random)) == 2


def test_ranks_of_open_mpi_talk_through_their_region(
    clean: OptionHosts, two: Path, tmp_path: Path
) -> None:
    """With PMIx, whose server is on the host. In a VM another user runs the job's tasks.

    Exactly the tasks of one VM share memory.
    """
    if "pmix" not in clean.at_head("srun", "--mpi=list").stdout:
        pytest.skip("this Slurm has no PMIx: on Debian, apt-get install libpmix-dev")
    job = clean.waiting_job(value=str(two))
    program = mpi_program(Mpi.OPENMPI, "verify")
    step = ("srun", f"--vicinal={two}", f"--jobid={job}", "--overlap", "-O", "--mpi=pmix")
    result = clean.at_head(*step, "-n2", program, "--max-size", "4096")
    assert result.returncode == 0, result.stderr
    checks = [json.loads(each) for each in result.stdout.splitlines() if each.startswith('{"')]
    assert len(checks) > 10, result.stdout
    assert not [each for each in checks if each["errors"]]
    listening = clean.at_head(*step, "-n1", "sh", "-c", "id -u; cat /proc/net/tcp")
    number, _, *sockets = listening.stdout.splitlines()
    assert number == "0"
    # Only the task's own sockets on the loopback, none of ended tasks. 0A is the state LISTEN.
    addresses = [each.split()[1][:8] for each in sockets if each.split()[3] == "0A"]
    assert addresses.count("0100007F") == 1, listening.stdout
    (supervisor,) = clean.supervisors("node0")
    region = f"file:/proc/{supervisor.pid}/root{REGIONS}/region"
    show = (VICINAL, "region", "show", "--json", region)
    state = json.loads(subprocess.run(show, check=True, capture_output=True).stdout)
    sent = {(each["sender"], each["receiver"]): each["messages"] for each in state["connections"]}
    assert max(sent.values()) > 1000, sent
    placed = clean.at_head(*step, "-n4", compile_for_each_mpi(PLACED_RANKS, tmp_path)["openmpi"])
    assert placed.returncode == 0, placed.stderr
    shown = [json.loads(each) for each in placed.stdout.splitlines() if each.startswith('{"')]
    assert {each["rank"]: (each["node"], each["together"], each["put"]) for each in shown} == {
        rank: (f"node{rank // 2}", 2, (rank - 1) % 4) for rank in range(4)
    }
    assert clean.at_head("scancel", job).returncode == 0


def test_what_jobs_do_leaves_the_snapshot_as_it_is(clean: OptionHosts, two: Path) -> None:
    job = (f"--vicinal={two}", "-wnode0", "-n2", "sh", "-c", "date >said; sync; hostname")
    assert clean.at_head("srun", *job).returncode == 0
    before = memories()
    result = clean.at_head("srun", *job)
    assert sorted(result.stdout.split()) == ["node0", "node1"]
    assert before
    assert memories() == before


def test_signals_reach_what_runs_in_a_vm(clean: OptionHosts, two: Path) -> None:
    script = "trap 'echo heard; exit 3' USR1; echo waits; while :; do sleep 0.1; done"
    task = ("sh", "-c", script)
    running = begin(clean, "srun", f"--vicinal={two}", "-wnode0", "-n1", *task)
    assert running.stdout is not None
    assert running.stdout.readline() == "waits\n"
    number = clean.at_head("squeue", "-h", "--states=R", "--format=%A").stdout.strip()
    assert clean.at_head("scancel", "-s", "USR1", number).returncode == 0
    said, _ = running.communicate(timeout=PATIENCE)
    assert (said, running.returncode) == ("heard\n", 3)


def test_vms_of_two_hosts_are_in_one_network(clean: OptionHosts, two: Path) -> None:
    """Two ranks in each VM use its region, and the network to ranks of the other VM."""
    program, other = (mpi_program(mpi, "verify") for mpi in (Mpi.MPICH, Mpi.OPENMPI))
    look = "echo $(hostname) $(cat /sys/class/net/e*/mtu) $(tail -n 2 /etc/hosts)"
    steps = (
        f"srun --mpi=pmi2 --ntasks-per-node=2 {program} --max-size 65536",
        f"srun --mpi=pmix --ntasks-per-node=2 {other} --max-size 4096",
        f"srun --ntasks-per-node=1 sh -c '{look}'",
    )
    job = ("salloc", "-Q", f"--vicinal={two}", "-N2", "--ntasks-per-node=2", "sh", "-c")
    result = clean.at_head(*job, " && ".join(steps))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    checks = [json.loads(each) for each in lines if each.startswith('{"')]
    assert len(checks) > 20, result.stdout
    assert not [each for each in checks if each["errors"]]
    names = "10.0.0.1 node0 10.0.0.2 node1"
    rest = [line for line in lines if not line.startswith("{")]
    assert sorted(set(rest)) == [f"node0 1450 {names}", f"node1 1450 {names}"]


# --- ends ----------------------------------------------------------------------------------


def test_a_vm_that_is_killed_ends_its_tasks(clean: OptionHosts, two: Path) -> None:
    running = sleeping(clean, two)
    vms(clean)["node1"].kill()
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode != 0
    assert "vicinal: error: the node node1 has ended, and its programs have ended with it" in errors


def test_all_ends_with_the_supervisor(clean: OptionHosts, two: Path) -> None:
    running = sleeping(clean, two)
    assert sorted(vms(clean)) == ["node0", "node1"]
    (supervisor,) = clean.supervisors("node0")
    supervisor.kill()
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode != 0
    assert "has ended" in errors


def test_a_job_is_cancelled_while_a_vm_boots(clean: OptionHosts, two: Path) -> None:
    """The next job removes what is left of a half-saved snapshot."""
    shutil.rmtree(snapshots_directory())
    job = (f"--vicinal={two}", "-wnode0", "-n2", "hostname")
    running = begin(clean, "srun", *job)
    wait_until(lambda: list(vms(clean)) == ["template"])
    number = clean.at_head("squeue", "-h", "--states=R", "--format=%A").stdout.strip()
    assert clean.at_head("scancel", number).returncode == 0
    said, errors = running.communicate(timeout=PATIENCE)
    assert not said
    assert "aborted" in errors
    wait_until(clean.nothing_left)
    result = clean.at_head("srun", *job)
    assert sorted(result.stdout.split()) == ["node0", "node1"], result.stderr
    assert [each.suffix for each in snapshots_directory().iterdir() if each.is_dir()] == [""]
