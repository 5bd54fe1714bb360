"""srun --vicinal with a real Slurm: two hosts, each with a slurmd that has the plugin."""

import json

import pytest
from command_support import CHECKOUT
from launch_support import NOBODY
from slurm_option_support import REGIONS, VICINAL, OptionHosts, become, wait_until

OTHER_USER = 1
"""The user daemon, in Debian. Neither daemon nor nobody is root."""


def test_the_check_finds_nothing_missing(hosts: OptionHosts) -> None:
    done = hosts.at_head(VICINAL, "slurm", "check", *hosts.installed())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: srun knows --vicinal" in done.stdout


# --- messages ------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", ["mpich"])
def test_ranks_of_srun_talk_through_the_region_of_their_job(clean: OptionHosts, mpi: str) -> None:
    """Two ranks on each host use the host's region, and the network between hosts."""
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


# --- isolation of jobs ---------------------------------------------------------------------


def test_jobs_of_two_users_cannot_open_each_others_regions(clean: OptionHosts) -> None:
    first = clean.waiting_job(user=OTHER_USER)
    look = (
        f"echo $VICINAL_REGION; cd {REGIONS}; for each in job-*; do "
        'head -c 8 "$each" 2>/dev/null && echo " is in $each"; done; '
        f"true >>job-{first} || echo refused"
    )
    result = clean.at_head(*become(NOBODY), "srun", "--vicinal", "-wnode0", "-n1", "sh", "-c", look)
    region, readable, refused = result.stdout.splitlines()
    second = region.removeprefix(f"file:{REGIONS}/job-")
    assert second != first
    assert readable == f"VICINAL1 is in job-{second}"
    assert refused == "refused"
    # The first job keeps its region meanwhile. Only a region of the same user has mode 0600 and
    # this owner.
    assert f"job-{first} 600 {OTHER_USER}" in clean.regions("node0")
    assert clean.at_head("scancel", first).returncode == 0


# --- steps ---------------------------------------------------------------------------------


def test_a_batch_script_and_its_steps_have_one_region(clean: OptionHosts) -> None:
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


def test_what_a_user_preloads_stays(clean: OptionHosts) -> None:
    """It comes behind Vicinal's libraries. Other variables are the administrator's."""
    show = ("srun", "--vicinal", "-wnode0", "-n1", "printenv", "LD_PRELOAD", "MPIR_CVAR_NOLOCAL")
    alone, forced = clean.at_head(*show).stdout.split()
    pairs, collectives = alone.split(":")
    assert pairs.endswith("/libvicinal-pairs.so")
    assert collectives.endswith("/libvicinal-mpi.so")
    users = {"LD_PRELOAD": "/lib/x86_64-linux-gnu/libdl.so.2", "MPIR_CVAR_NOLOCAL": "0"}
    both, still = clean.at_head(*show, **users).stdout.split()
    assert both == f"{alone}:{users['LD_PRELOAD']}"
    again = clean.at_head(*show, LD_PRELOAD=both).stdout.split()[0]
    assert (again, forced, still) == (both, "1", "1")


# --- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("nonsense", "'nonsense' is not a value of --vicinal: write it as --vicinal=region"),
        ("region,members=512,section=1G", "that this cluster permits: request less"),
        ("region,members=513", "2 to 512 are possible"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_job(
    hosts: OptionHosts, command: str, value: str, fault: str
) -> None:
    what = ("--wrap", "true") if command == "sbatch" else ("true",)
    result = hosts.at_head(command, f"--vicinal={value}", *what)
    assert result.returncode != 0
    assert fault in result.stderr
    assert hosts.at_head("squeue", "-h").stdout == ""


def test_a_step_that_the_region_is_too_small_for(clean: OptionHosts) -> None:
    """The step ends with one message, and the host keeps accepting jobs."""
    result = clean.at_head("srun", "--vicinal=region,members=2", "-N1", "-n3", "true")
    assert result.returncode != 0
    fault = "the job's region has 2 member slots, and this step 3 tasks on a host: start the job"
    assert result.stderr.count(fault) == 1
    assert "drain" not in clean.at_head("sinfo", "-h").stdout


def test_a_value_that_comes_by_the_environment(clean: OptionHosts) -> None:
    """srun does not check such a value, so the hosts check it."""
    variables = {"_SLURM_SPANK_OPTION_vicinal_vicinal": "nonsense;true"}
    result = clean.at_head("srun", "-n1", "echo", "ran", **variables)
    assert result.returncode != 0
    assert "'nonsense;true' is not a value of --vicinal" in result.stderr
    assert "ran" not in result.stdout
