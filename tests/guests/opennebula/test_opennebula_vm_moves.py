"""OpenNebula's driver saves, restores and moves a real VM, while an MPI job runs in it.

This host represents two hosts. Each has a libvirt, a /dev/shm and records of its own, the second
in a mount namespace. A stand-in for ssh enters the namespace. Stand-ins for the stock scripts do by
libvirt's library what OpenNebula's scripts do by virsh.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from domain_scenario import enter, two_vms
from domain_support import private_daemon
from guest_support import BOUND
from guest_verify import Pair
from opennebula_support import Host, error_text
from test_opennebula import deploy, written

from vicinal.cluster.nodes.vm.pair import pair_identities
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.guest.identity import make_keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.integrations.opennebula.installation import Installation
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import job_command
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi
from vicinal.region import inspect
from vicinal.region.format import Route, SlotState

JOB_SECONDS = 7200  # the test ends it earlier
ENDED = "the job has ended"
MOVES = 2  # the VM that moves

_STOCK = """\
#!{python}
import os, pathlib, signal, sys, time, libvirt
libvirt.registerErrorHandler(lambda *_: None, None)
action, how = pathlib.Path(sys.argv[0]).name, os.environ.get("STAND_IN_HOW", "")
connection = libvirt.open(os.environ["LIBVIRT_URI"])
given = sys.stdin.read()
here, there = "{here}", "{there}"

def renamed(xml):
    for name in ("console1", "guest1.port"):
        xml = xml.replace(f"{{here}}/{{name}}", f"{{there}}/{{name}}")
    return xml

if how == action + "-fail":
    sys.exit("Could not do it")
if how == action + "-killed":
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(1)
if how == action + "-orphan":
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)
if action == "deploy":
    pathlib.Path(sys.argv[1]).write_text(given)
    print(connection.createXML(given).UUIDString())
elif action == "restore":
    connection.restore(sys.argv[1])
    os.unlink(sys.argv[1])
else:
    domain = connection.lookupByName(sys.argv[1])
    if action == "save":
        domain.save(sys.argv[2])
    elif action == "migrate":
        xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE)
        parameters = {{
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: renamed(xml),
            libvirt.VIR_MIGRATE_PARAM_URI: "unix://" + there + "/move",
        }}
        # Not live: it is emulated (docs/decisions/0015).
        domain.migrate3(libvirt.open("{other}"), parameters, libvirt.VIR_MIGRATE_ABORT_ON_ERROR)
        if how == "migrate-spoil":
            os.truncate("{other_shm}/{region}", 4096)
        if how == "migrate-late":
            os.kill(os.getppid(), signal.SIGKILL)
    else:
        domain.destroy()
"""

_SSH = """\
#!/bin/sh
for command do :; done
exec nsenter --mount={namespace} sh -c "$command"
"""


@dataclass
class TwoHosts:
    """Both hosts, by the paths in the first host's files."""

    first: Host
    second: Host
    uris: tuple[str, str]
    namespace: Path
    """The file of the second host's mount namespace."""
    checkpoint: Path

    @property
    def regions(self) -> tuple[Path, Path]:
        """The job's region on each host."""
        there = self.namespace.parent.parent / "root"
        return self.first.region(), there / str(self.first.region()).lstrip("/")

    def act(
        self, action: str, *arguments: str, on: int = 1, vm: int = MOVES, how: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Call a script of the first host, or of the second, which has it at the same path."""
        began = time.monotonic()
        done = subprocess.run(
            self.command(action, *arguments, on=on, vm=vm),
            input="<VMM_DRIVER_ACTION_DATA/>",
            capture_output=True,
            text=True,
            env=self.variables(how),
        )
        took = f"in {time.monotonic() - began:.1f} s"
        print(action, *arguments, how, "->", done.returncode, took, done.stderr.strip())
        return done

    def command(self, action: str, *arguments: str, on: int, vm: int) -> list[str]:
        go = [] if on == 1 else ["nsenter", f"--mount={self.namespace}"]
        script = str(self.first.remotes / "vmm/vicinal" / action)
        return [*go, script, *arguments, str(vm), f"node{on}"]

    def variables(self, how: str = "") -> dict[str, str]:
        path = f"{self.first.directory}:{os.environ['PATH']}"
        return {**self.first.variables(how), "PATH": path}

    def kill_move(self, when: Callable[[], bool]) -> None:
        """Begin to move the VM to the second host, and kill the driver."""
        name = f"one-{MOVES}"
        command = self.command("migrate", name, "node2", "node1", on=1, vm=MOVES)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=self.variables()
        ) as process:
            assert process.stdin is not None
            process.stdin.close()
            while not when():
                assert process.poll() is None
                time.sleep(0.01)
            process.kill()
        assert process.returncode < 0
        print("migrate", name, "-> killed")

    def next_action(self, on: int = 1) -> None:
        """Call a script for a VM that belongs to nobody."""
        done = self.act("cancel", "one-99", f"node{on}", on=on, vm=99)
        assert done.returncode == 1  # from the stock script

    def move(self, source: int, target: int, how: str = "") -> "subprocess.CompletedProcess[str]":
        name = f"one-{MOVES}"
        return self.act("migrate", name, f"node{target}", f"node{source}", on=source, how=how)

    def save(self, how: str = "") -> "subprocess.CompletedProcess[str]":
        return self.act("save", f"one-{MOVES}", str(self.checkpoint), "node1", how=how)

    def restore(self, on: int = 1) -> "subprocess.CompletedProcess[str]":
        return self.act("restore", str(self.checkpoint), f"node{on}", f"one-{MOVES}", on=on)


@contextmanager
def namespace(own: Path, seen_as: Path) -> Iterator[Path]:
    """A host's mounts: a /dev/shm of its own, and its files at the paths of the other host."""
    script = (
        f"mount -t tmpfs tmpfs /dev/shm && mount --bind {own} {seen_as} && echo ready && exec cat"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Path(f"/proc/{process.pid}/ns/mnt")
        process.terminate()


def prepare(hosts: TwoHosts, directory: Path) -> None:
    """Scripts on both hosts; the moving VM's console has a path on each."""
    there = directory / "there"
    there.mkdir()
    sides = ((hosts.first, directory, there, 1), (hosts.second, there, directory, 0))
    shared = (hosts.regions[1].parent, hosts.regions[0].parent)
    for host, own, others, other in sides:
        for action in ("deploy", "cancel", "save", "restore", "migrate"):
            text = _STOCK.format(
                python=sys.executable,
                here=own,
                there=others,
                other=hosts.uris[other],
                other_shm=shared[1 - other],
                region=hosts.first.region().name,
            )
            (host.remotes / "vmm/kvm" / action).write_text(text)
        uri = hosts.uris[1 - other]
        (host.remotes / "etc/vmm/kvm/kvmrc").write_text(f"export LIBVIRT_URI='{uri}'\n")
        Installation(host.remotes, Path(sys.executable)).install()
        ssh = host.directory / "ssh"
        mounts = hosts.namespace if other == 1 else Path(f"/proc/{os.getpid()}/ns/mnt")
        ssh.write_text(_SSH.format(namespace=mounts))
        ssh.chmod(0o755)


class Trial:
    """A job of two ranks, one in each VM, of which one VM moves."""

    def __init__(self, hosts: TwoHosts, guest: GuestShell) -> None:
        self.hosts = hosts
        self.guest = guest

    def start(self, guests: list[GuestShell], image: object) -> None:
        pair = Pair(guests, image, self.hosts.first.region())  # type: ignore[arg-type]
        program = [str(mpi_program(Mpi.MPICH, "soak")), str(JOB_SECONDS)]
        command, environment = job_command(Job(program=program, ranks=2, mpi=Mpi.MPICH), pair)
        line = " ".join(f"'{word}'" for word in command)
        variables = {**environment, "VICINAL_PEER_TIMEOUT": "3600"}
        script = f"({line}; echo {ENDED} with $?) >/tmp/output 2>&1 </dev/null &"
        done = self.guest.run(["sh", "-c", f"trap '' HUP; {script}"], environment=variables)
        assert done.returncode == 0, done.stderr

    def output(self) -> str:
        return self.guest.run(["cat", "/tmp/output"]).stdout

    def wait_until(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOUND
        while not true():
            said = self.output()
            assert ENDED not in said, said
            assert time.monotonic() < deadline, f"{what}: {said}"
            time.sleep(0.5)

    def members(self, host: int) -> int:
        """The number of ranks in a host's region."""
        region = self.hosts.regions[host - 1]
        return sum(each.state is SlotState.JOINED for each in inspect(region).members)

    def in_second(self) -> int:
        """The same of the second host, where the region may have just appeared or gone."""
        return self.members(2) if self.hosts.regions[1].exists() else 0

    def messages(self) -> int:
        """The number of messages through the first host's region, in both directions."""
        state = inspect(self.hosts.regions[0])
        found = [
            each.messages
            for each in state.connections
            if each.sender != each.receiver and each.route is Route.REGION
        ]
        return sum(found) if len(found) == 2 and min(found) > 0 else 0

    def talks(self) -> None:
        """Wait until messages pass through the region that both are in."""
        self.wait_until("all ranks talk", lambda: self.messages() > 0)
        before = self.messages()
        self.wait_until("messages go on", lambda: self.messages() > before)

    def end(self) -> None:
        self.guest.run(["sh", "-c", "kill -USR2 $(pidof soak)"])
        deadline = time.monotonic() + BOUND
        while ENDED not in self.output():
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.5)
        printed = self.output()
        assert f"{ENDED} with 0" in printed, printed
        (record,) = read_records(printed)
        print(json.dumps(record))
        assert record["errors"] == 0
        assert record["sent"] == record["received"] > 100


def domains(*hypervisors: Hypervisor) -> list[set[str]]:
    """The VMs that run on each host."""
    return [{each.name() for each in one.connection.listAllDomains()} for one in hypervisors]


def start_vms(
    directory: Path, hosts: TwoHosts, hypervisor: Hypervisor
) -> tuple[list[GuestShell], object]:
    image = build_image(print)
    accelerator = choose_accelerator(find_qemu(), image, print).accelerator
    keys = make_keys(directory, pair_identities())
    specs = two_vms(directory, image, keys, accelerator, SharedRegion("unused", 1 << 20))
    vms = [
        DomainSpec(**{**vars(spec), "name": f"one-{number}", "region": None})
        for number, spec in enumerate(specs, 1)
    ]
    for vm, spec in enumerate(vms, 1):
        done = deploy(hosts.first, vm, written(spec))
        assert done.returncode == 0, done.stderr
    return [enter(hypervisor, spec, keys) for spec in vms], image


def test_a_job_goes_on_while_its_vm_is_moved_saved_and_restored() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vicinal-")))
        for name in ("one", "two"):
            (directory / name).mkdir()
        first, second = Host(directory / "one"), Host(directory / "two")
        stack.callback(first.region().unlink, missing_ok=True)
        for host in (first, second):
            host.state.mkdir(mode=0o700)
        mounts = stack.enter_context(namespace(second.directory, first.directory))
        here_uri = stack.enter_context(private_daemon())
        there_uri = stack.enter_context(private_daemon(["nsenter", f"--mount={mounts}"]))
        checkpoint = directory / "checkpoint"
        hosts = TwoHosts(first, second, (here_uri, there_uri), mounts, checkpoint)
        prepare(hosts, directory)
        here = stack.enter_context(connect(here_uri))
        there = stack.enter_context(connect(there_uri))
        guests, image = start_vms(directory, hosts, here)
        trial = Trial(hosts, guests[0])
        trial.start(guests, image)
        guests[1].close()  # the guest would not notice that the connection ends
        trial.talks()
        both = {"one-1", f"one-{MOVES}"}

        # After a failure the VM stays here, with its region and its rank in it.
        limits = second.remotes / "etc/vmm/vicinal/vicinal.conf"
        allowed = limits.read_text()
        limits.write_text("REGION_SIZE_MAX=8M\n")
        assert "REGION_SIZE_MAX" in error_text(hosts.move(1, 2).stderr)
        limits.write_text(allowed)
        trial.talks()
        for how, action in (("migrate-fail", hosts.move), ("save-fail", None)):
            done = hosts.move(1, 2, how) if action else hosts.save(how)
            assert done.returncode == 1
            assert domains(here, there) == [both, set()]
            trial.talks()
        assert "cannot be attached" in error_text(hosts.move(1, 2, "migrate-spoil").stderr)
        assert domains(here, there) == [both, set()]
        assert not hosts.regions[1].exists()
        trial.talks()

        # The driver is killed: the next action gives the VM its missing devices.
        assert hosts.save("save-killed").returncode < 0
        assert trial.members(1) == 1
        hosts.next_action()
        trial.talks()
        # During a move before its ranks have left, and after everything was given up.
        hosts.kill_move(hosts.regions[1].exists)
        hosts.next_action()
        trial.talks()
        assert hosts.move(1, 2, "migrate-killed").returncode < 0
        assert trial.members(1) == 1
        hosts.next_action()
        assert domains(here, there) == [both, set()]
        trial.talks()
        # While the stock script runs, before the VM moves and after it has moved.
        assert hosts.move(1, 2, "migrate-orphan").returncode < 0
        trial.wait_until("it is in the other region", lambda: trial.in_second() == 1)
        assert domains(here, there) == [{"one-1"}, {f"one-{MOVES}"}]
        hosts.next_action()
        assert trial.members(1) == 1
        assert hosts.move(2, 1, "migrate-late").returncode < 0
        assert domains(here, there) == [both, set()]
        trial.talks()
        hosts.next_action(on=2)

        # To the other host, and back.
        assert hosts.move(1, 2).returncode == 0
        assert domains(here, there) == [{"one-1"}, {f"one-{MOVES}"}]
        trial.wait_until("it is in the other region", lambda: trial.members(2) == 1)
        assert trial.members(1) == 1
        assert hosts.move(2, 1).returncode == 0
        assert domains(here, there) == [both, set()]
        assert not hosts.regions[1].exists()
        trial.talks()

        # Saved and restored.
        assert hosts.save().returncode == 0
        assert domains(here, there) == [{"one-1"}, set()]
        assert trial.members(1) == 1
        assert hosts.restore().returncode == 0
        assert domains(here, there) == [both, set()]
        trial.talks()
        trial.end()

        # Without MPI processes, on another host, which creates a new region.
        assert hosts.save().returncode == 0
        text = subprocess.run(["strings", "-n", "6", checkpoint], capture_output=True, text=True)
        assert "urn:vicinal:away" in text.stdout or shutil.which("strings") is None
        limits.write_text("REGION_SIZE_MAX=8M\n")
        assert "REGION_SIZE_MAX" in error_text(hosts.restore(on=2).stderr)
        assert checkpoint.exists()
        limits.write_text(allowed)
        assert hosts.restore(on=2).returncode == 0
        assert domains(here, there) == [{"one-1"}, {f"one-{MOVES}"}]
        assert hosts.regions[1].exists()
        assert hosts.act("cancel", f"one-{MOVES}", "node2", on=2).returncode == 0
        assert not hosts.regions[1].exists()
        guests[0].close()
        assert hosts.act("cancel", "one-1", "node1", vm=1).returncode == 0
        assert not hosts.regions[0].exists()
        assert domains(here, there) == [set(), set()]
        for host in (first, second):
            assert {each.name for each in host.state.iterdir()} <= {".lock"}
