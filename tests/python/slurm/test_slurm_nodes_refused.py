"""Nodes that a Slurm job cannot have: one line says why, and nothing remains."""

import os

import pytest
from slurm_option_support import OptionHosts, become

USER = 1
NODES = "name: lab\nnodes:\n  - {name: node, count: 2"
OPTION = "_SLURM_SPANK_OPTION_vicinal_vicinal"
"""The variable that brings the value to the hosts without a check by srun."""


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
def test_a_file_that_is_not_there_is_refused_before_there_is_a_job(
    hosts: OptionHosts, command: str
) -> None:
    what = ("--wrap", "true") if command == "sbatch" else ("true",)
    result = hosts.at_head(command, "--vicinal=nowhere.yaml", *what)
    assert result.returncode != 0
    assert "the cluster file nowhere.yaml cannot be read (No such file" in result.stderr
    assert hosts.at_head("squeue", "-h").stdout == ""


UNFIT = {
    "yaml": ("name: [", "bad.yaml:1: "),
    "schema": (f"{NODES}, colour: red}}\n", "bad.yaml:3: "),
    "host": (f"{NODES}, backend: host}}\n", "host"),
    "hosts": (
        f"hosts: [{{name: a, bridge: br0}}]\n{NODES}}}\n",
        "names hosts, and Slurm chooses a job's hosts",
    ),
    "bridge": (
        f"{NODES}, network: {{bridge: br0}}}}\n",
        "which a Slurm job may not use",
    ),
    "mounts": (f"{NODES}, mounts: [/root/.ssh]}}\n", "/root/.ssh cannot be mounted in a node"),
    "region": (
        f"{NODES}}}\nregion: {{members: 512, section: 1G}}\n",
        "Slurm's administrator allows 4.0",
    ),
    "command": (
        f'{NODES}}}\nfirst_boot: ["touch /etc/mine"]\n',
        "ended with status 1: touch /etc/mine",
    ),
    "kill": (f'{NODES}}}\nfirst_boot: ["kill -9 1 $PPID; kill -9 -1"]\n', "vicinal: "),
}
"""Cluster files, and the message for each."""
COMMON = ("schema", "bridge", "kill")
"""An invalid file, a file that jobs cannot use, and a file that ends the supervisor."""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param(*UNFIT[name], id=name, marks=[] if name in COMMON else pytest.mark.long)
        for name in UNFIT
    ],
)
def test_a_file_that_no_job_can_have(clean: OptionHosts, text: str, fault: str) -> None:
    """The supervisor reads the file, and does what it says, as the job's user."""
    file = clean.cluster_file("bad.yaml", text)
    step = ("srun", f"--vicinal={file}", "-wnode0", "-n2", "--chdir=/", "echo", "ran")
    result = clean.at_head(*become(USER), *step)
    assert result.returncode != 0
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if "vicinal: " in line]
    assert len(lines) == 1, result.stderr
    assert fault in lines[0]


@pytest.mark.parametrize(
    "kind",
    [
        *("/etc/shadow", "pipe"),
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("/dev/zero", "link", "/")),
    ],
)
def test_a_file_that_is_none(clean: OptionHosts, kind: str) -> None:
    """Another user's file is not shown, and a pipe or an endless file does not block."""
    pipe, link = clean.directory / "pipe", clean.directory / "link"
    if kind == "pipe":
        os.mkfifo(pipe, 0o666)
    link.unlink(missing_ok=True)
    link.symlink_to("/etc/shadow")
    value = kind if kind.startswith("/") else str(clean.directory / kind)
    step = ("srun", "-wnode0", "-n1", "--chdir=/", "echo", "ran")
    result = clean.at_head(*become(USER), *step, **{OPTION: value})
    assert result.returncode != 0
    assert result.stdout == ""
    assert "vicinal: " in result.stderr
    assert "root:" not in result.stderr


def test_more_hosts_than_nodes(clean: OptionHosts) -> None:
    file = clean.cluster_file("one.yaml", "name: lab\nnodes:\n  - name: node\n")
    result = clean.at_head("srun", f"--vicinal={file}", "-N2", "--chdir=/", "true")
    assert result.returncode != 0
    assert "one.yaml has 1 node, and the job has 2 hosts: give the job at most" in result.stderr


@pytest.mark.long
def test_more_tasks_than_the_region_has_slots(clean: OptionHosts) -> None:
    file = clean.cluster_file("small.yaml", f"{NODES}}}\nregion: {{members: 2}}\n")
    step = ("srun", f"--vicinal={file}", "-wnode0", "-n1", "--chdir=/", "true")
    assert clean.at_head(*step).returncode == 0
    script = "srun -n1 true && srun --overcommit -n99 true"
    job = ("salloc", "-Q", f"--vicinal={file}", "-wnode0", "-n1", "--chdir=/", "sh", "-c", script)
    result = clean.at_head(*job)
    assert result.returncode != 0
    assert "member slots, and this step 99 tasks on a host: raise region.members" in result.stderr


def test_a_directory_that_a_node_does_not_have(clean: OptionHosts) -> None:
    file = clean.cluster_file("good.yaml", f"{NODES}}}\n")
    result = clean.at_head("srun", f"--vicinal={file}", "-wnode0", "-n1", "true")
    assert result.returncode != 0
    assert f"the node node0 does not have the directory {clean.directory}" in result.stderr


@pytest.mark.long
def test_another_file_than_that_of_the_job(clean: OptionHosts) -> None:
    first = clean.cluster_file("first.yaml", f"{NODES}}}\n")
    second = clean.cluster_file("second.yaml", f"{NODES}}}\n")
    number = clean.waiting_job(value=str(first))
    step = ("srun", f"--vicinal={second}", f"--jobid={number}", "--overlap", "--chdir=/", "true")
    result = clean.at_head(*step)
    assert result.returncode != 0
    assert f"the job already has the nodes of {first}: a job has one cluster" in result.stderr
    assert clean.at_head("scancel", number).returncode == 0
