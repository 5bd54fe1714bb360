"""`vicinal run --slurm` inside an allocation of a real Slurm with two hosts."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from host_support import check_paths
from launch_support import check_reports, wait_for
from slurm_support import CPUS, SlurmHosts

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote import hosts as remote_hosts
from vicinal.cluster.hosts.remote.hosts import Host

VICINAL = f"{sys.executable} -m vicinal"
LEFT_SECONDS = 30.0
LONG = pytest.mark.long


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHosts]:
    with SlurmHosts(2, tmp_path_factory.mktemp("slurm")) as opened:
        yield opened


def without_ssh(hosts: SlurmHosts) -> str:
    """A command for a shell that runs vicinal. ssh is replaced, so that nothing can use ssh."""
    (hosts.directory / "bin/ssh").write_text("#!/bin/sh\nexit 255\n")
    return VICINAL


def nothing_left(hosts: SlurmHosts) -> None:
    deadline = time.monotonic() + LEFT_SECONDS
    while left := hosts.leftovers():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


# --- the allocation ------------------------------------------------------------------------


@pytest.fixture
def two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_hosts, "_expanded", lambda _listed: ["node0", "node1"])


@pytest.mark.usefixtures("two_names")
def test_each_host_takes_as_many_ranks_as_tasks_or_else_processors() -> None:
    found = {
        "SLURM_JOB_NODELIST": "node[0-1]",
        "SLURM_TASKS_PER_NODE": "3,1",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
    }
    assert remote_hosts.allocation(found) == [Host("node0", 4), Host("node1", 4)]
    found["SLURM_NTASKS"] = "4"
    assert remote_hosts.allocation(found) == [Host("node0", 3), Host("node1", 1)]


@pytest.mark.usefixtures("two_names")
@pytest.mark.parametrize("counts", ["", "2", "x", "2(x3)", "2(x99999999)", "2(x9999999)"])
def test_variables_that_do_not_fit_the_allocation_are_refused(counts: str) -> None:
    found = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_CPUS_PER_NODE": counts}
    with pytest.raises(VicinalError, match="the allocation has 2 hosts, but SLURM_JOB_CPUS_PER"):
        remote_hosts.allocation(found)


def test_outside_of_an_allocation(vicinal: Vicinal) -> None:
    line = error_line(vicinal("run", "-n", 2, "--slurm", "true", SLURM_JOB_NODELIST=""))
    assert "no Slurm allocation was found" in line
    assert "start the command from salloc or sbatch" in line
    assert "leave out all but one" in error_line(
        vicinal("run", "-n", 2, "--slurm", "--hosts", "a", "true")
    )


# --- jobs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", ["mpich", pytest.param("openmpi", marks=LONG)])
def test_answers_are_right_in_an_allocation(hosts: SlurmHosts, mpi: str) -> None:
    """Two ranks on each host use the host's region, and the network between hosts."""
    program = CHECKOUT / "build/programs" / mpi / "verify"
    command = f"{without_ssh(hosts)} run -n 4 --slurm --paths {program} --max-size 65536"
    result = hosts.at_head("salloc", "-N2", "--ntasks-per-node=2", "sh", "-c", command)
    assert result.returncode == 0, result.stderr
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10
    assert not [each for each in checks if each["errors"]]
    check_paths(result.stderr, (0, 0, 1, 1))
    nothing_left(hosts)


def srun_example() -> list[str]:
    """The commands of docs/how-to/hosts.md for ranks that srun itself starts."""
    text = (CHECKOUT / "docs/how-to/hosts.md").read_text()
    _, _, rest = text.partition("ranks that srun starts itself")
    example = rest.partition("    ")[2].partition("\n\n")[0]
    return [line.strip() for line in example.splitlines()]


def test_srun_starts_ranks_by_itself(hosts: SlurmHosts) -> None:
    """The documented commands: two ranks on each host, a region in each, a network between them."""
    program = CHECKOUT / "build/programs/mpich/verify"
    commands = {"vicinal": VICINAL, "program": f"{program} --max-size 65536"}
    for name, command in commands.items():
        script = hosts.directory / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    variables, create, run, remove = srun_example()
    assert "./program" in run
    show = create.partition(" --members")[0].replace("region create", "region show --json")
    show = show.replace("srun ", "srun --label ")
    example = "\n".join([variables, create, run.replace("./program", "program"), show, remove])
    result = hosts.at_head("salloc", "-Q", "-N2", "--ntasks-per-node=2", "sh", "-ec", example)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    checks = [json.loads(line) for line in lines if line.startswith('{"')]
    assert len(checks) > 10, result.stdout
    assert not [each for each in checks if each["errors"]]
    for host in range(2):
        shown = [line[3:] for line in lines if line.startswith(f"{host}: ")]
        state = json.loads("\n".join(shown))
        assert len(state["members"]) == 2
        messages = {
            (each["sender"], each["receiver"]): each["messages"] for each in state["connections"]
        }
        assert messages[0, 1] > 0
        assert messages[1, 0] > 0
        # Each of the two ranks here reaches two ranks outside of the region.
        assert len(state["beyond"]) == 4
    nothing_left(hosts)


@pytest.mark.long
def test_ranks_follow_the_tasks_of_a_batch_script(
    hosts: SlurmHosts, programs: dict[str, Path], tmp_path: Path
) -> None:
    """The script runs on the first host, whose region therefore needs no step of its own."""
    script, output = tmp_path / "script", tmp_path / "output"
    command = f"{without_ssh(hosts)} run -n 3 --slurm {programs['mpich']} report"
    script.write_text(f'#!/bin/sh\n{command}\necho "status $?"\n')
    output.touch()
    result = hosts.at_head(
        *("sbatch", "-N2", "-n3", "--distribution=block", f"--output={output}", script)
    )
    assert result.returncode == 0, result.stderr
    wait_for(output, "status ")
    *reports, status = output.read_text().splitlines()
    assert status == "status 0"
    check_reports("\n".join(reports), ["node0", "node0", "node1"])
    nothing_left(hosts)


def test_more_ranks_than_the_allocation_has(hosts: SlurmHosts) -> None:
    command = f"{VICINAL} run -n 9 --slurm true"
    result = hosts.at_head("salloc", "-Q", "-N2", f"--cpus-per-task={CPUS}", "sh", "-c", command)
    assert f"the hosts have slots for {2 * CPUS} ranks, and the job has 9" in error_line(result)


def test_a_host_that_no_step_reaches(hosts: SlurmHosts) -> None:
    """The variables name a host that is not in the allocation."""
    wrong = "SLURM_JOB_NODELIST=node[0-1] SLURM_JOB_CPUS_PER_NODE='1(x2)'"
    command = f"unset SLURM_NTASKS; {wrong} {without_ssh(hosts)} run -n 2 --slurm true"
    line = error_line(hosts.at_head("salloc", "-Q", "-wnode0", "sh", "-c", command))
    assert line.startswith("vicinal: error: host node1: srun does not reach it (")
    assert "srun --overlap --nodelist=node1 --ntasks=1 true" in line
    nothing_left(hosts)


@pytest.mark.parametrize("mpi", [pytest.param("mpich", marks=LONG), "openmpi"])
def test_a_cancelled_job_leaves_nothing(
    hosts: SlurmHosts, programs: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    script, output = tmp_path / "script", tmp_path / "output"
    command = f"{without_ssh(hosts)} run -n 4 --slurm {programs[mpi]} wait"
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    output.touch()
    job = ["sbatch", "--parsable", "-N2", "--ntasks-per-node=2", f"--output={output}", script]
    number = hosts.at_head(*job).stdout.strip()
    wait_for(output, "ready")
    assert hosts.leftovers().keys() == set(hosts.names)
    assert hosts.at_head("scancel", number).returncode == 0
    nothing_left(hosts)
