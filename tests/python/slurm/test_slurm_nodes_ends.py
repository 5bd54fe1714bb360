"""A job with nodes leaves nothing in a real Slurm, however it ends and whatever is killed."""

import os
import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from launch_support import GUARD_SECONDS
from process_support import pid_namespace, signal_all, words_of
from slurm_option_support import REGIONS, VICINAL, OptionHosts, become, wait_until

JOBS = int(os.environ.get("SOAK_JOBS", "6"))
"""Jobs in a row, on two hosts at once."""
USER = 1
ENDED = "vicinal: the job ended while its nodes were created"
FILE = "name: lab\nnodes:\n  - {name: node, count: 2}\nregion: {members: 8}\n"


@pytest.fixture
def clean(hosts: OptionHosts) -> Iterator[OptionHosts]:
    """Hosts without traces of jobs before and after the test, which then run another job."""
    hosts.cluster_file("two.yaml", FILE)
    with hosts.clean():
        yield hosts
        done = hosts.at_head(*step(hosts), "-n2", "hostname")
        assert sorted(done.stdout.split()) == ["node0", "node1"], done.stderr


def step(hosts: OptionHosts, *options: str) -> tuple[str, ...]:
    """The beginning of a command line that runs a user's tasks in nodes of the first host."""
    value = f"--vicinal={hosts.directory}/two.yaml"
    return (*become(USER), "srun", value, "-wnode0", "--chdir=/", "--job-name=dies", *options)


def sleeping(hosts: OptionHosts) -> list[psutil.Process]:
    """The tasks in nodes, each a child of Slurm's process for it."""
    return hosts.sleeping("601")


def started(hosts: OptionHosts, tasks: int = 2) -> subprocess.Popen[str]:
    """A step that sleeps in its nodes, with one task in each. Its standard error can be read."""
    line = hosts.entered([*step(hosts, f"-n{tasks}"), "sleep", "601"])
    found = subprocess.Popen(
        line,
        env=hosts.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(sleeping(hosts)) == tasks)
    return found


def error_of(ended: subprocess.Popen[str]) -> str:
    _, error = ended.communicate(timeout=GUARD_SECONDS)
    assert ended.returncode != 0
    return error


# --- killed --------------------------------------------------------------------------------


def test_a_killed_node_ends_its_tasks_and_says_so(clean: OptionHosts) -> None:
    """The other node keeps running."""
    running = started(clean)
    victim, other = sorted(sleeping(clean), key=lambda each: each.pid)
    inside = pid_namespace(victim.pid)
    shells = [each for each in psutil.process_iter() if words_of(each)[:1] == ["/bin/sh"]]
    signal_all([each for each in shells if pid_namespace(each.pid) == inside], signal.SIGKILL)
    wait_until(lambda: not victim.is_running())
    assert other.is_running()
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    assert "vicinal: error: the node node" in error_of(running)


def test_a_killed_supervisor_ends_the_job_s_tasks(clean: OptionHosts) -> None:
    running = started(clean)
    signal_all(clean.supervisors("node0"), signal.SIGKILL)
    assert "has ended, and its programs have ended with it" in error_of(running)
    assert not sleeping(clean)


@pytest.mark.long
@pytest.mark.parametrize("signaled", ["what Slurm has for the task", "the task"])
def test_a_killed_task(clean: OptionHosts, signaled: str) -> None:
    running = started(clean, 1)
    tasks = sleeping(clean)
    victims = tasks if signaled == "the task" else [tasks[0].parent()]
    signal_all([each for each in victims if each is not None], signal.SIGKILL)
    error = error_of(running)
    assert "Killed" in error
    assert "the node" not in error
    wait_until(lambda: not sleeping(clean))


@pytest.mark.long
def test_a_killed_step(clean: OptionHosts) -> None:
    """kill -9 of the step's slurmstepd, and of Slurm's processes for its tasks."""
    running = started(clean)
    signal_all(clean.running("node0", "slurmstepd"), signal.SIGKILL)
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    running.kill()
    running.communicate()
    wait_until(lambda: not clean.supervisors("node0"))
    wait_until(lambda: not sleeping(clean))


def test_a_host_that_lost_slurm(clean: OptionHosts) -> None:
    """kill -9 of slurmd and slurmstepd: the nodes remain until slurmd runs again."""
    running = started(clean)
    for program in ("slurmd", "slurmstepd"):
        signal_all(clean.running("node0", program), signal.SIGKILL)
    wait_until(lambda: not clean.running("node0", "slurmd"))
    assert len(clean.supervisors("node0")) == 1
    clean.start_slurmd("node0")
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    running.kill()
    running.communicate()
    wait_until(lambda: not clean.supervisors("node0"))


# --- cancelled -----------------------------------------------------------------------------


@pytest.mark.long
def test_a_job_that_is_cancelled_while_its_tasks_run(clean: OptionHosts) -> None:
    """A user can stop the supervisor, but the supervisor ends nevertheless."""
    running = started(clean)
    signal_all(clean.supervisors("node0"), signal.SIGSTOP)
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    error_of(running)


@pytest.mark.long
def test_a_job_that_is_cancelled_while_its_nodes_are_made(clean: OptionHosts) -> None:
    """The user stops the supervisor that makes the nodes, while another step waits for it."""
    file = clean.cluster_file("slow.yaml", f'{FILE}first_boot: ["sleep 601"]\n')
    log = clean.slurm_conf.parent / "node0.log"
    before = log.read_text().count(ENDED)
    options = ("-wnode0", "-n2", "--chdir=/", "--job-name=dies")
    srun = f"srun --vicinal={file} --overlap -n1 true"
    seen: set[int] = set()

    def all_gone() -> bool:
        seen.update(each.pid for each in clean.supervisors("node0"))
        return clean.nothing_left()

    with clean.start(*become(USER), "salloc", *options, "sh", "-c", f"{srun} & {srun}") as job:
        try:
            wait_until(lambda: len(clean.running("node0", "slurmstepd")) == 2 and sleeping(clean))
            signal_all(clean.supervisors("node0"), signal.SIGSTOP)
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            wait_until(all_gone)
        finally:
            signal_all(clean.supervisors("node0"), signal.SIGKILL)
            job.kill()
    assert log.read_text().count(ENDED) - before == 2
    assert len(seen) == 1  # the other step does not start another supervisor


@pytest.mark.long
def test_a_job_that_is_cancelled_between_steps(clean: OptionHosts) -> None:
    number = clean.waiting_job(user=USER, value=f"{clean.directory}/two.yaml")
    assert clean.regions("node0") == [f"nodes-{number} 600 0"]
    assert len(clean.supervisors("node0")) == 1
    assert clean.at_head("scancel", number).returncode == 0


# --- leftovers -----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("sweeper", ["the next epilog", "vicinal slurm sweep"])
def test_nodes_that_a_crash_left_over(clean: OptionHosts, sweeper: str) -> None:
    """They belong to a job that Slurm no longer has. The nodes of an existing job stay."""
    number = clean.waiting_job(user=USER, value=f"{clean.directory}/two.yaml")
    move = f"mv {REGIONS}/nodes-{number} {REGIONS}/nodes-4000000"
    other = clean.waiting_job(user=USER, value=f"{clean.directory}/two.yaml")
    clean.cluster.run_in("node0", ["sh", "-c", move])
    assert len(clean.supervisors("node0")) == 2
    if sweeper == "the next epilog":
        assert clean.at_head("srun", "-wnode0", "-n1", "true").returncode == 0
    else:
        sweep = [VICINAL, "slurm", "sweep", "--directory", REGIONS]
        clean.cluster.run_in("node0", ["env", f"SLURM_CONF={clean.slurm_conf}", *sweep])
    wait_until(lambda: len(clean.supervisors("node0")) == 1)
    # The supervisor's record is removed after the supervisor has ended.
    wait_until(lambda: clean.regions("node0") == [f"nodes-{other} 600 0"])
    for each in (number, other):
        assert clean.at_head("scancel", each).returncode == 0


# --- many ----------------------------------------------------------------------------------


@pytest.mark.long
def test_short_jobs_in_a_row_leave_nothing(clean: OptionHosts) -> None:
    value = f"--vicinal={clean.directory}/two.yaml"
    job = f"srun {value} --chdir=/ -w\"$1\" -n1 sh -c 'test -w /run/vicinal/region' || exit"
    script = "\n".join([job] * (JOBS // 2))
    rows = [clean.start(*become(USER), "sh", "-c", script, "row", name) for name in clean.names]
    assert [row.wait(2 * GUARD_SECONDS) for row in rows] == [0, 0]
