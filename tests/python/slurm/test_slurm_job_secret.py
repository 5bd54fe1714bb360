"""A Slurm job has a secret that only its supervisors know, on all its hosts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from launch_support import GUARD_SECONDS
from slurm_option_support import OptionHosts, become, wait_until

USER = 1
VARIABLE = "SLURM_VICINAL_SECRET"
FILE = "name: lab\nnodes:\n  - {name: node, count: 2}\n"
SCRIPT = """#!/bin/sh
cd /
srun -N1 -n1 -wnode0 /bin/true
srun -N1 -n1 -wnode1 /bin/true
srun -N2 -n2 /bin/sh -c 'echo "[$SLURM_VICINAL_SECRET]"'
exec /bin/sleep 600
"""


@pytest.fixture(autouse=True, scope="module")
def files(hosts: OptionHosts) -> None:
    hosts.cluster_file("two.yaml", FILE)
    hosts.cluster_file("script", SCRIPT)


def job(hosts: OptionHosts, command: str, *options: str) -> tuple[object, ...]:
    """A job on both hosts that waits. If it has several first steps, each is on one host."""
    value = (f"--vicinal={hosts.directory}/two.yaml", "-N2", "-n2", "--job-name=waits", *options)
    script = hosts.directory / "script"
    match command:
        case "srun":
            words: tuple[object, ...] = ("--chdir=/", "/bin/sleep", "600")
        case "salloc":
            words = ("-Q", "-K", "--chdir=/", "/bin/sh", script)
        case _:
            words = ("-W", "--chdir=/", "--output=/dev/null", script)
    return (command, *value, *words)


@contextmanager
def running(hosts: OptionHosts, *words: object, **variables: str) -> Iterator[list[str]]:
    """The secrets of a job's supervisors, one on each host."""
    # Supervisors of an earlier job end later than the job.
    wait_until(lambda: not any(map(hosts.supervisors, hosts.names)))
    with subprocess.Popen(
        hosts.entered([*become(USER), *map(str, words)]),
        env=hosts.environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as started:
        try:
            wait_until(lambda: all(map(hosts.supervisors, hosts.names)))
            supervisors = [
                supervisor for name in hosts.names for supervisor in hosts.supervisors(name)
            ]
            wait_until(lambda: all("VICINAL_JOB_SECRET" in each.environ() for each in supervisors))
            yield [each.environ()["VICINAL_JOB_SECRET"] for each in supervisors]
        finally:
            cancelled = hosts.at_head("scancel", "--name=waits")
            started.wait(GUARD_SECONDS)
        assert cancelled.returncode == 0


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ((), "srun"),
        *(
            pytest.param(options, command, marks=pytest.mark.long)
            for options, command in (
                ((), "salloc"),  # salloc has no such option
                ((), "sbatch"),
                (("--export=NONE",), "srun"),
                (("--export=NONE",), "sbatch"),
            )
        ),
    ],
)
def test_all_hosts_of_a_job_have_its_secret(
    clean: OptionHosts, command: str, options: tuple[str, ...]
) -> None:
    """This holds whichever step is first on a host. A leftover secret of another is not used."""
    with running(clean, *job(clean, command, *options), **{VARIABLE: "0" * 64}) as secrets:
        assert len(secrets) == 2
        assert len(set(secrets)) == 1
        assert len(bytes.fromhex(secrets[0])) == 32
        assert secrets[0] != "0" * 64


@pytest.mark.long
def test_tasks_in_nodes_do_not_see_it_nor_do_others(clean: OptionHosts) -> None:
    """No argument of a process, and nothing that Slurm shows of a job, contains the secret."""
    value = f"--vicinal={clean.directory}/two.yaml"
    words = (value, "-N2", "-n2", "--chdir=/", "/bin/sh", "-c", f'echo "[${VARIABLE}]"')
    shown = clean.at_head(*become(USER), "srun", *words)
    assert shown.stdout == "[]\n[]\n", shown.stderr
    with running(clean, *job(clean, "sbatch")) as secrets:
        for command in (("ps", "-ewwo", "args"), ("scontrol", "show", "job", "-d")):
            said = clean.at_head(*become(USER + 1), *command)
            assert said.returncode == 0, said.stderr
            assert secrets[0] not in said.stdout


@pytest.mark.long
def test_what_is_no_secret_is_not_taken(clean: OptionHosts) -> None:
    """A value in the environment of a job comes from the job's user, and may be invalid."""
    value = f"--vicinal={clean.directory}/two.yaml"
    step = f"{VARIABLE}=$(printf %064d 0)x exec srun --chdir=/ /bin/sleep 600"
    words = ("salloc", "-Q", "-K", value, "-N2", "-n2", "--job-name=waits", "/bin/sh", "-c", step)
    with running(clean, *words) as secrets:
        assert len(set(secrets)) == 1
        assert len(bytes.fromhex(secrets[0])) == 32
