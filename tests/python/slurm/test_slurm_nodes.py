"""srun --vicinal=FILE with a real Slurm: jobs whose tasks run in containers of their own."""

import json
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, NOBODY
from slurm_option_support import OptionHosts, become, wait_until

LONG = pytest.mark.long
OTHER_USER = 1
"""The user daemon, in Debian. Neither daemon nor nobody is root."""
FILE = """
name: lab
nodes:
  - name: node
    count: {count}
    mounts: [work]
region:
  members: 16
"""


@pytest.fixture(scope="module")
def four(hosts: OptionHosts) -> Path:
    """A cluster file with four containers."""
    return hosts.cluster_file("four.yaml", FILE.format(count=4))


# --- where tasks run -----------------------------------------------------------------------


@pytest.mark.parametrize("user", [pytest.param(0, marks=LONG), OTHER_USER])
def test_tasks_run_in_nodes_and_else_as_ever(clean: OptionHosts, four: Path, user: int) -> None:
    """Tasks keep user, directory, files and variables. Each node has two tasks."""
    script = (
        'read -r line; echo "$(hostname) $(id -u) $PWD $SLURM_PROCID $OWN $line"; '
        'echo "$SLURM_PROCID" >"of-$SLURM_PROCID"; exit $((SLURM_PROCID == 7 ? 9 : 0))'
    )
    work = clean.directory / "work"
    line = f"cd {work} && echo given | srun --vicinal={four} -wnode0 -O -n8 sh -c '{script}'"
    result = clean.at_head(*become(user), "sh", "-c", line, OWN="mine")
    assert result.returncode == 9, result.stderr
    said = sorted((each.split() for each in result.stdout.splitlines()), key=lambda words: words[3])
    assert [words[0] for words in said] == [f"node{rank // 2}" for rank in range(8)]
    assert {tuple(words[1:3]) for words in said} == {(str(user), str(work))}
    assert [words[4] for words in said] == ["mine"] * 8
    made = sorted(work.glob("of-*"))
    assert [each.read_text() for each in made] == [f"{rank}\n" for rank in range(8)]
    assert {each.stat().st_uid for each in made} == {user}
    for each in made:
        each.unlink()


def test_the_nodes_of_a_job_are_spread_over_its_hosts(clean: OptionHosts, four: Path) -> None:
    job = ("srun", f"--vicinal={four}", "--chdir=/", "-N2", "--ntasks-per-node=2")
    result = clean.at_head(*job, "sh", "-c", "echo $SLURMD_NODENAME $(hostname)")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        *("node0 node0", "node0 node1"),
        *("node1 node2", "node1 node3"),
    ]


def test_nodes_do_not_have_the_daemons_score_when_memory_is_short(
    clean: OptionHosts, four: Path
) -> None:
    """If memory is short, the kernel treats the nodes like any other program of a user."""
    scores = [Path(f"/proc/{each.pid}/oom_score_adj") for each in clean.running("node0", "slurmd")]
    before = {score: score.read_text() for score in scores}
    assert before
    job = ("srun", f"--vicinal={four}", "--chdir=/", "-wnode0", "-n1")
    try:
        for score in scores:
            score.write_text("500")  # a lower value needs a capability that root may lack
        result = clean.at_head(*job, "cat", "/proc/1/oom_score_adj")
    finally:
        for score, text in before.items():
            score.write_text(text)
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr


def test_steps_of_a_script_find_the_nodes_as_the_one_before_left_them(
    clean: OptionHosts, four: Path
) -> None:
    """The script itself runs on the host, because it gives commands to Slurm."""
    work = clean.directory / "work"
    (work / "script").write_text(
        "#!/bin/sh\nhostname\ncd /\nsrun -n1 sh -c 'echo kept >/tmp/file; hostname'\n"
        "srun -n1 cat /tmp/file\ntest ! -e /tmp/file && echo apart\n"
    )
    # If a step begins while the step before it ends, srun writes that it tries again.
    outputs = ("--output=said", "--error=told")
    job = ("sbatch", f"--vicinal=../{four.name}", "-wnode0", *outputs, "script")
    result = clean.at_head("sh", "-c", f"cd {work} && {' '.join(job)}")
    assert result.returncode == 0, result.stderr
    said = work / "said"
    wait_until(lambda: said.exists() and said.read_text().endswith("apart\n"))
    assert said.read_text().split() == ["node0", "node0", "kept", "apart"]


def test_a_task_gets_each_signal_once(clean: OptionHosts, four: Path) -> None:
    """Slurm sends it to the task and to the process that stands for the task on the host."""
    script = "trap 'echo heard' USR1; trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done"
    step = ("srun", "-u", f"--vicinal={four}", "-wnode0", "-n1", "--chdir=/", "--job-name=hears")
    line = clean.entered([*step, "sh", "-c", script])
    with subprocess.Popen(
        line, env=clean.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        for number in ("USR1", "TERM"):
            assert clean.at_head("scancel", f"--signal={number}", "--name=hears").returncode == 0
            if number == "USR1":
                assert running.stdout.readline() == "heard\n"
        rest, error = running.communicate(timeout=GUARD_SECONDS)
    assert rest == ""
    assert "task 0: Exited with exit code 5" in error


# --- messages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts_of_job", "user"),
    [
        (1, 0),  # test_slurm_pmix.py has another user than root, on two hosts
        pytest.param(2, OTHER_USER, marks=LONG),
        pytest.param(1, OTHER_USER, marks=LONG),
        pytest.param(2, 0, marks=LONG),
    ],
)
def test_ranks_in_nodes_talk_through_their_region(
    clean: OptionHosts, four: Path, user: int, hosts_of_job: int
) -> None:
    """Each rank has its own node. On two hosts, a region has two ranks, and a network connects."""
    program = CHECKOUT / "build/programs/mpich/verify"
    kept = clean.directory / "work/region"
    keep = f'cat "${{VICINAL_REGION#file:}}" >{kept}'
    script = f"srun --mpi=pmi2 {program} --max-size 65536 && srun -N1 -n1 sh -c '{keep}'"
    spread = (f"-N{hosts_of_job}", f"--ntasks-per-node={4 // hosts_of_job}")
    job = ("salloc", "-Q", f"--vicinal={four}", *spread, "sh", "-c")
    result = clean.at_head(*become(user), *job, f"cd / && {script}")
    assert result.returncode == 0, result.stderr
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10, result.stdout
    assert not [each for each in checks if each["errors"]]
    state = clean.shown_region(kept)
    assert len(state["members"]) == 4 // hosts_of_job
    sent = {(each["sender"], each["receiver"]): each["messages"] for each in state["connections"]}
    assert sent[0, 1] > 0
    assert sent[1, 0] > 0


# --- isolation of jobs ---------------------------------------------------------------------


LISTEN = """
import socket
with socket.create_server(("", 7777)) as server:
    while True:
        server.accept()[0].close()
"""
LOOK = """
import os, pathlib, socket, subprocess
def reaches(address):
    try:
        socket.create_connection((address, 7777), timeout=5).close()
    except OSError:
        return False
    return True
print(reaches("node0"))
print(subprocess.run(["pgrep", "-f", "server[.]accept"], capture_output=True).returncode == 0)
print([path for path in pathlib.Path("/proc").glob("[0-9]*/root") if (path / "tmp/mark").exists()])
with open(os.environ["VICINAL_REGION"].removeprefix("file:"), "rb") as file:
    print(file.read(256).hex())
"""


@pytest.mark.parametrize(
    "users", [pytest.param((OTHER_USER, NOBODY), marks=LONG), (OTHER_USER, OTHER_USER)]
)
def test_two_jobs_at_once_see_nothing_of_each_other(
    clean: OptionHosts, four: Path, users: tuple[int, int]
) -> None:
    """They see no processes, network or region of each other. One job's steps see everything."""
    value = f"--vicinal={four}"
    first = clean.waiting_job(user=users[0], value=str(four))
    step = (*become(users[0]), "srun", value, f"--jobid={first}", "--overlap", "--chdir=/")
    listen = "touch /tmp/mark; exec python3 -c"
    with clean.start(*step, "-n1", "sh", "-c", f"{listen} '{LISTEN}'") as listening:
        try:
            wait_until(lambda: "True" in clean.at_head(*step, "python3", "-c", LOOK).stdout)
            own = clean.at_head(*step, "python3", "-c", LOOK).stdout.splitlines()
            assert own[:2] == ["True", "True"]
            assert "/proc/" in own[2]
            alone = (*become(users[1]), "srun", value, "-wnode0", "-n1", "--chdir=/")
            other = clean.at_head(*alone, "python3", "-c", LOOK).stdout.splitlines()
            assert other[:3] == ["False", "False", "[]"]
            assert len(other[3]) == len(own[3]) == 512
            assert other[3] != own[3]
            wait_until(lambda: len(clean.supervisors("node0")) == 1)
        finally:
            assert clean.at_head("scancel", first).returncode == 0
            listening.wait(GUARD_SECONDS)
