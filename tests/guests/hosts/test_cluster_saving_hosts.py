"""A cluster on two hosts is saved while an MPI job runs over both, and continues later.

The hosts are those of test_cluster_hosts.py: namespaces, each with a libvirt, a region and a
network of its own.
"""

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import libvirt
import psutil
import pytest
from guest_support import BOUND
from launch_support import package_path
from process_support import signal_all
from test_cluster_hosts import NAME, TwoHosts

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.guests import NoImage
from vicinal.cluster.nodes.job_nodes import JobGuests
from vicinal.cluster.vm.guest.commands import SSH_FAILED, GuestCommands
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import job_command
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi

VMS = ("vm0", "vm1", "vm2")
"""vm2 is on the second host."""
JOB_SECONDS = 7200  # the test ends it earlier
ENDED = "the job has ended"


class SavedHosts(TwoHosts):
    def write(self) -> Path:
        file = self.directory / "cluster.yaml"
        hosts = [
            f"  - {{name: {name}, hypervisor: '{uri}'}}\n"
            for name, uri in zip(self.names, self.uris, strict=True)
        ]
        count = len(VMS)
        file.write_text(
            f"name: {NAME}\nhosts:\n{''.join(hosts)}"
            f"nodes: [{{name: vm, backend: vm, count: {count}, memory: 512M}}]\n"
            "region: {members: 8}\n"
        )
        return file

    def variables(self) -> dict[str, str]:
        return self.environment(XDG_STATE_HOME=str(self.directory / "state"))

    def begin(self, *arguments: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(*arguments),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def refused(self, *arguments: object) -> str:
        """The lines of the errors, one for each host with an error."""
        said = self.call(*arguments, status=1).stderr.splitlines()
        errors = [line for line in said if "error:" in line]
        assert errors, said
        return "\n".join(errors)

    def states(self) -> list[int]:
        """The states of the VMs in libvirt."""
        return [
            int(domain.state()[0])
            for uri in self.uris
            for domain in libvirt.open(uri).listAllDomains()
        ]

    def messages(self) -> int:
        """The number of messages through the region between the VMs of the first host."""
        search = f"PYTHONPATH={package_path()}"
        region = f"/dev/shm/vicinal-0-{NAME}"
        show = ["env", search, sys.executable, "-m", "vicinal", "region", "show", "--json", region]
        state: dict[str, Any] = json.loads(self.cluster.run_in(self.names[0], show))
        return sum(
            each["messages"]
            for each in state["connections"]
            if each["sender"] != each["receiver"] and each["route"] == "region"
        )

    def output(self) -> str:
        return self.call("exec", "--cluster", NAME, "vm0", "cat", "/tmp/output").stdout


class Vm(GuestCommands):
    """Run a command in a VM, by `vicinal exec` at the head."""

    def __init__(self, hosts: SavedHosts, name: str) -> None:
        self.name = name
        self._hosts = hosts

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        assert not tty
        own = [f"{key}={value}" for key, value in self._hosts.variables().items()]
        inside = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
        words = ["exec", "--cluster", NAME, self.name, *inside]
        return self._hosts.entered(["env", *own, sys.executable, "-m", "vicinal", *words])

    def is_lost(self, status: int) -> bool:
        return status == SSH_FAILED

    def failure(self, what: str) -> VicinalError:
        return VicinalError(f"{self.name}: {what}", "see what the test did")


class Vms:
    """All VMs, in the order of a job's launcher: the part that a command line needs."""

    network = GuestNetwork.VIRTIO
    image = NoImage()

    def __init__(self, hosts: SavedHosts) -> None:
        self.guests = [Vm(hosts, name) for name in VMS]


@pytest.fixture
def hosts() -> Iterator[SavedHosts]:
    with tempfile.TemporaryDirectory(prefix="vh-") as directory, SavedHosts(Path(directory)) as two:
        try:
            two.start_daemons()
            yield two
        finally:
            two.stop_daemons()


def test_a_job_over_both_hosts_goes_on_where_it_was(hosts: SavedHosts) -> None:
    program = mpi_program(Mpi.MPICH, "soak")  # compiled before the image is built
    build_image(print)
    file = hosts.write()
    hosts.call("up", file)
    assert f"{NAME} has no saved virtual machines" in hosts.refused("restore", NAME)
    start_job(hosts, program)
    wait_until("messages flow", hosts, lambda: hosts.messages() > 100)

    killed(hosts, file)
    flows_again(hosts)

    save(hosts)
    assert "no virtual machine" in hosts.refused("save", NAME)
    assert f"> {hosts.names[1]}: vm/vm2" in hosts.call("plan", file, status=2).stdout
    began = time.monotonic()
    restored = hosts.call("restore", NAME).stderr
    print(f"restored in {time.monotonic() - began:.1f} s")
    assert f"starting {hosts.names[1]}: vm/vm2" in restored, restored
    assert "unchanged" in hosts.call("plan", file).stdout
    flows_again(hosts)

    save(hosts)
    # `up` also resumes all VMs together.
    assert f"starting {hosts.names[0]}: vm/vm1" in hosts.call("up", file).stderr
    flows_again(hosts)
    end_job(hosts)
    hosts.call("down", NAME)
    assert hosts.left() == []


def save(hosts: SavedHosts) -> None:
    began = time.monotonic()
    hosts.call("save", NAME)
    print(f"saved in {time.monotonic() - began:.1f} s")
    assert set(hosts.states()) == {libvirt.VIR_DOMAIN_SHUTOFF}
    status = json.loads(hosts.call("status", "--json", NAME, status=1).stdout)
    assert {node["state"] for node in status["nodes"]} == {"saved"}, status
    assert [piece["why"] for piece in status["pieces"] if piece["key"] == "save/main"] == [
        "its virtual machines are saved"
    ]


def killed(hosts: SavedHosts, file: Path) -> None:
    """The command is killed while it saves VMs: they resume, and the next command works."""
    command = hosts.begin("save", NAME)
    assert command.stderr is not None
    with command.stderr:
        deadline = time.monotonic() + BOUND
        while libvirt.VIR_DOMAIN_SHUTOFF not in hosts.states():
            assert command.poll() is None, command.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        began = time.monotonic()
        # The command is nsenter's child.
        signal_all(psutil.Process(command.pid).children(recursive=True), signal.SIGKILL)
        command.wait()
    wait_until("all VMs run", hosts, lambda: set(hosts.states()) == {libvirt.VIR_DOMAIN_RUNNING})
    print(f"killed, and all VMs went on {time.monotonic() - began:.1f} s later")
    assert "save/main" in hosts.call("plan", file, status=2).stdout


def start_job(hosts: SavedHosts, program: Path) -> None:
    """Start a job inside the first VM, where it outlives the command that starts it."""
    job = Job(program=[str(program), str(JOB_SECONDS)], ranks=len(VMS), mpi=Mpi.MPICH)
    command, environment = job_command(job, cast("JobGuests", Vms(hosts)))
    variables = [f"{key}={value}" for key, value in environment.items()]
    line = shlex.join(["env", *variables, *command])
    script = f"({line}; echo {ENDED} with $?) >/tmp/output 2>&1 </dev/null &"
    hosts.call("exec", "--cluster", NAME, "vm0", "sh", "-c", f"trap '' HUP; {script}")


def flows_again(hosts: SavedHosts) -> None:
    before, began = hosts.messages(), time.monotonic()
    wait_until("messages flow again", hosts, lambda: hosts.messages() > before + 100)
    print(f"100 messages took {time.monotonic() - began:.1f} s")


def end_job(hosts: SavedHosts) -> None:
    hosts.call("exec", "--cluster", NAME, "vm2", "sh", "-c", "kill -USR2 $(pidof soak)")
    began = time.monotonic()
    wait_until("the job has ended", hosts, lambda: ENDED in hosts.output())
    print(f"the job ended {time.monotonic() - began:.1f} s after it was told to")
    printed = hosts.output()
    assert f"{ENDED} with 0" in printed, printed
    (record,) = read_records(printed)
    print(json.dumps(record))
    assert record["errors"] == 0
    assert record["sent"] == record["received"] > 100


def wait_until(what: str, hosts: SavedHosts, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not true():
        assert time.monotonic() < deadline, f"{what}; the job: {hosts.output()}"
        time.sleep(0.5)
