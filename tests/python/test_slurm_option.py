"""srun --vicinal with a real Slurm: two hosts with a slurmd each, which has the plugin."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conftest import CHECKOUT
from launch_support import GUARD_SECONDS, NOBODY
from process_support import named, signal_all
from slurm_support import SlurmHosts

from vicinal.errors import VicinalError
from vicinal.slurm.files import find_plugin

VICINAL = str(Path(sys.executable).parent / "vicinal")
REGIONS = "/run/node/regions"
"""Each host has its own."""
PATIENCE = 90.0
OTHER_USER = 1
"""daemon, in Debian. Neither it nor nobody is root."""


class Hosts(SlurmHosts):
    """Hosts with the option, as an administrator installs it."""

    def prepare(self) -> None:
        done = self.at_head(VICINAL, "slurm", "install", "--directory", REGIONS)
        assert done.returncode == 0, done.stderr

    def regions(self, name: str) -> list[str]:
        """What is in the directory of regions of a host, with modes and owners."""
        show = "find . -mindepth 1 -printf '%P %m %U\\n'"
        script = f"if [ -d {REGIONS} ]; then cd {REGIONS} && {show}; fi"
        return sorted(self.cluster.run_in(name, ["sh", "-c", script]).splitlines())

    def running(self, name: str, program: str) -> list[psutil.Process]:
        """The processes of a program on a host."""
        return named(self.cluster.processes(name), program)

    def kill(self, name: str, program: str) -> int:
        """kill -9 all processes of a program there; returns how many those were."""
        found = self.running(name, program)
        signal_all(found, signal.SIGKILL)
        return len(found)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        find_plugin()
    except VicinalError as error:
        pytest.skip(str(error))
    # Other users have to reach slurm.conf, which they do not in a directory of pytest.
    directory = Path(tempfile.mkdtemp(prefix="vicinal-slurm-"))
    directory.chmod(0o755)
    try:
        with Hosts(2, directory) as opened:
            yield opened
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def clean(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts that have no regions before, and none after."""
    wait_until(lambda: nothing_left(hosts))
    yield hosts
    wait_until(lambda: nothing_left(hosts))


def wait_until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def nothing_left(hosts: Hosts) -> bool:
    return not any(hosts.regions(name) for name in hosts.names) and not hosts.leftovers()


def waiting_job(hosts: Hosts, *, user: int = 0, command: tuple[str, ...] = ()) -> str:
    """Start a job with a region on the first host, which waits to be cancelled; its number."""
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
    done = hosts.at_head(
        *(*become, "salloc", "-Q", "--vicinal", "-wnode0", "-n1", "--no-shell", "--job-name=waits")
    )
    assert done.returncode == 0, done.stderr
    listed = hosts.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.split()
    number = max(listed, key=int)
    step = ("srun", "--vicinal", f"--jobid={number}", "--overlap", *(command or ("true",)))
    done = hosts.at_head(*become, *step)
    assert done.returncode == 0, done.stderr
    return number


def test_the_check_finds_nothing_missing(hosts: Hosts) -> None:
    done = hosts.at_head(VICINAL, "slurm", "check", "--directory", REGIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: srun knows --vicinal" in done.stdout


# --- messages ------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", ["mpich"])
def test_ranks_of_srun_talk_through_the_region_of_their_job(clean: Hosts, mpi: str) -> None:
    """Two on each host: the region between these, and the network to the others."""
    program = CHECKOUT / "build/programs" / mpi / "verify"
    show = f"srun -l -n2 --ntasks-per-node=1 sh -c '{VICINAL} region show --json $VICINAL_REGION'"
    script = f"srun --mpi=pmi2 {program} --max-size 65536 && {show}"
    job = ["salloc", "-Q", "--vicinal", "-N2", "--ntasks-per-node=2", "sh", "-c", script]
    result = clean.at_head(*job)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    checks = [json.loads(line) for line in lines if line.startswith('{"')]
    assert len(checks) > 10, result.stdout
    assert not [each for each in checks if each["errors"]]
    for host in range(2):
        shown = [line[3:] for line in lines if line.startswith(f"{host}: ")]
        state = json.loads("\n".join(shown))
        assert len(state["members"]) == 2
        sent = {
            (each["sender"], each["receiver"]): each["messages"] for each in state["connections"]
        }
        assert sent[0, 1] > 0
        assert sent[1, 0] > 0
        assert len(state["beyond"]) == 4


# --- jobs apart from each other ------------------------------------------------------------


def test_jobs_of_two_users_cannot_open_each_others_regions(clean: Hosts) -> None:
    first = waiting_job(clean, user=OTHER_USER)
    look = (
        f"echo $VICINAL_REGION; cd {REGIONS}; for each in job-*; do "
        'head -c 8 "$each" 2>/dev/null && echo " is in $each"; done; '
        f"true >>job-{first} || echo refused"
    )
    become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    result = clean.at_head(*become, "srun", "--vicinal", "-wnode0", "-n1", "sh", "-c", look)
    region, readable, refused = result.stdout.splitlines()
    second = region.removeprefix(f"file:{REGIONS}/job-")
    assert second != first
    assert readable == f"VICINAL1 is in job-{second}"
    assert refused == "refused"
    # The first has its own all the while; nobody else's is 0600 of its user.
    assert f"job-{first} 600 {OTHER_USER}" in clean.regions("node0")
    assert clean.at_head("scancel", first).returncode == 0


# --- ends ----------------------------------------------------------------------------------


def test_a_cancelled_job_leaves_nothing(clean: Hosts) -> None:
    number = waiting_job(clean)
    assert clean.regions("node0") == [f"job-{number} 600 0"]
    assert clean.at_head("scancel", number).returncode == 0


def test_a_killed_step_leaves_nothing(clean: Hosts, tmp_path: Path) -> None:
    """kill -9 of its tasks and of the slurmstepd that looks after them."""
    with (tmp_path / "output").open("w") as output:
        step = subprocess.Popen(
            clean.entered(
                ["srun", "--vicinal", "-wnode0", "-n2", "--job-name=dies", "sleep", "600"]
            ),
            env=clean.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: len(clean.running("node0", "sleep")) == 2)
        assert len(clean.regions("node0")) == 1
        assert clean.kill("node0", "slurmstepd") > 0
        assert clean.kill("node0", "sleep") == 2
        assert clean.at_head("scancel", "--name=dies").returncode == 0
        wait_until(lambda: not clean.regions("node0"))
    finally:
        step.kill()  # srun may wait long for a step that nobody speaks for
        step.wait()


def test_ten_short_jobs_leave_nothing(clean: Hosts) -> None:
    """Five in a row on each host."""
    job = """srun --vicinal -w"$1" -n1 sh -c 'test -w "${VICINAL_REGION#file:}"' || exit"""
    rows = [
        subprocess.Popen(
            clean.entered(["sh", "-c", "\n".join([job] * 5), "row", name]),
            env=clean.environment(),
            stdin=subprocess.DEVNULL,
        )
        for name in clean.names
    ]
    assert [row.wait(GUARD_SECONDS) for row in rows] == [0, 0]


def test_a_batch_script_and_its_steps_have_one_region(clean: Hosts) -> None:
    script = (
        f"#!/bin/sh\nexec >{REGIONS}.seen\necho $VICINAL_REGION\nsrun printenv VICINAL_REGION\n"
    )
    (clean.directory / "script").write_text(f"{script}echo done\n")
    job = ("sbatch", "--parsable", "--vicinal", "-wnode0", "--output=/dev/null")
    number = clean.at_head(*job, clean.directory / "script").stdout.strip()
    seen = ("node0", ["sh", "-c", f"cat {REGIONS}.seen 2>/dev/null || true"])
    wait_until(lambda: clean.cluster.run_in(*seen).endswith("done\n"))
    region = f"file:{REGIONS}/job-{number}"
    assert clean.cluster.run_in(*seen).split() == [region, region, "done"]


def test_what_a_crash_left_over_goes_with_the_next_epilog(clean: Hosts) -> None:
    """And no region of a job that is there, though none of its processes is a member."""
    number = waiting_job(clean)
    make = [VICINAL, "slurm", "region", "--directory", REGIONS, "--user", "0"]
    clean.cluster.run_in("node0", [*make, "4000000"])
    assert len(clean.regions("node0")) == 2
    assert clean.at_head("srun", "-wnode0", "-n1", "true").returncode == 0
    wait_until(lambda: clean.regions("node0") == [f"job-{number} 600 0"])
    assert clean.at_head("scancel", number).returncode == 0


# --- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("nonsense", "'nonsense' is nothing that --vicinal knows: write it as --vicinal=region"),
        ("region,members=512,section=1G", "that this cluster allows: ask for less"),
        ("region,members=513", "2 to 512 are possible"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_job(
    hosts: Hosts, command: str, value: str, fault: str
) -> None:
    what = ("--wrap", "true") if command == "sbatch" else ("true",)
    result = hosts.at_head(command, f"--vicinal={value}", *what)
    assert result.returncode != 0
    assert fault in result.stderr
    assert hosts.at_head("squeue", "-h").stdout == ""


def test_a_step_that_the_region_is_too_small_for(clean: Hosts) -> None:
    """It ends, says why once, and the host goes on taking jobs."""
    result = clean.at_head("srun", "--vicinal=region,members=2", "-N1", "-n3", "true")
    assert result.returncode != 0
    fault = "the job's region has 2 member slots, and this step 3 tasks on a host: start the job"
    assert result.stderr.count(fault) == 1
    assert "drain" not in clean.at_head("sinfo", "-h").stdout


def test_a_value_that_comes_by_the_environment(clean: Hosts) -> None:
    """Past what srun looks at: hosts do so themselves."""
    variables = {"_SLURM_SPANK_OPTION_vicinal_vicinal": "nonsense;true"}
    result = clean.at_head("srun", "-n1", "echo", "ran", **variables)
    assert result.returncode != 0
    assert "'nonsense;true' is nothing that --vicinal knows" in result.stderr
    assert "ran" not in result.stdout
