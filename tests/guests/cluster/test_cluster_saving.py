"""A cluster of virtual machines is saved while an MPI job runs in it, and continues later."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from domain_support import private_daemon
from guest_support import BOUND
from vms_scenario import Trial

from vicinal.cluster.manager import open_nodes
from vicinal.cluster.nodes.vm.guests import VmGuests
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import job_command
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi
from vicinal.region import inspect
from vicinal.region.format import Route

ENDED = "the job has ended"


def test_a_job_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their libvirt is like Debian's, whose QEMU runs as a user without access to root's files."""
    daemon = private_daemon(user="libvirt-qemu")
    with daemon as uri, tempfile.TemporaryDirectory(prefix="vicinal-") as name:
        monkeypatch.setenv("LIBVIRT_DEFAULT_URI", uri)
        monkeypatch.setenv("XDG_STATE_HOME", f"{name}/state")
        trial = Trial(Path(name))
        try:
            trial.call("up", trial.write(count=2))
            save_and_restore(trial)
        finally:
            trial.call("down", trial.name)
        assert trial.left() == [], trial.left()


def save_and_restore(trial: Trial) -> None:
    assert f"{trial.name} has no saved virtual machines" in trial.refused("restore", trial.name)
    start_job(trial)
    wait_until("messages flow through the region", lambda: messages(trial) > 1000)
    assert "a command of this host runs in vm1" in refused_beside_a_command(trial)
    flowing = messages(trial)
    wait_until("the job goes on", lambda: messages(trial) > flowing + 100)

    began = time.monotonic()
    trial.call("save", trial.name)
    print(f"saved in {time.monotonic() - began:.1f} s")
    status = json.loads(trial.call("status", "--json", trial.name, status=1).stdout)
    assert {node["state"] for node in status["nodes"]} == {"saved"}, status
    whys = {piece["why"] for piece in status["pieces"] if piece["key"].startswith("vm/")}
    assert whys == {"it is saved"}, status
    assert "no virtual machine" in trial.refused("save", trial.name)

    began = time.monotonic()
    trial.call("restore", trial.name)
    print(f"restored in {time.monotonic() - began:.1f} s")
    trial.call("plan", trial.file, status=0)
    printed = output(trial)
    assert ENDED not in printed, f"it ended before it could be saved: {printed}"
    before = messages(trial)
    wait_until("messages flow through the region again", lambda: messages(trial) > before + 100)
    wait_until("the job has ended", lambda: ENDED in output(trial))
    printed = output(trial)
    assert f"{ENDED} with 0" in printed, printed
    records = read_records(printed)
    assert len(records) == 1, printed
    assert all(record["errors"] == 0 for record in records), records


def start_job(trial: Trial) -> None:
    """Start a job inside the first VM, where it outlives the command that starts it."""
    guests = open_nodes(trial.name)
    assert isinstance(guests, VmGuests)
    program = [str(mpi_program(Mpi.MPICH, "verify")), "--only", "storm"]
    job = Job(program=[*program, "--rounds", "150"], ranks=2, mpi=Mpi.MPICH)
    command, environment = job_command(job, guests)
    variables = [f"{key}={value}" for key, value in environment.items()]
    line = shlex.join(["env", *variables, *command])
    script = f"({line}; echo {ENDED} with $?) >/tmp/output 2>&1 </dev/null &"
    trial.call("exec", "vm0", "sh", "-c", f"trap '' HUP; {script}")


def refused_beside_a_command(trial: Trial) -> str:
    with subprocess.Popen(
        [sys.executable, "-m", "vicinal", "exec", "vm1", "sh", "-c", "echo here; sleep 600"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"here\n"
        try:
            return trial.refused("save", trial.name)
        finally:
            command.terminate()


def messages(trial: Trial) -> int:
    """The number of messages between the VMs through the region."""
    return sum(
        each.messages
        for each in inspect(trial.region).connections
        if each.sender != each.receiver and each.route is Route.REGION
    )


def output(trial: Trial) -> str:
    return trial.call("exec", "vm0", "cat", "/tmp/output").stdout


def wait_until(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)
