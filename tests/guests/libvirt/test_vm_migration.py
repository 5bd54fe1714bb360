"""A VM moves from one libvirt to another, back and there again, while an MPI job runs in it.

Both libvirts are the test's own. This host represents two hosts: each has a region and a directory
of its own, and the bridge is the network of both.
"""

import gc
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from domain_support import private_daemon
from guest_support import BOUND
from vms_scenario import Trial

from vicinal.base.errors import VicinalError
from vicinal.cluster.manager import open_nodes
from vicinal.cluster.nodes.vm.guest_ssh import GuestSsh, end_guest_ssh
from vicinal.cluster.nodes.vm.guests import VmGuests
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.layout import Files
from vicinal.cluster.nodes.vm.migration import move_vm
from vicinal.cluster.nodes.vm.migration_host import LocalMigrationHost
from vicinal.cluster.nodes.vm.ranks import Return
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.state import journal_of
from vicinal.cluster.resources.desired import recorded_resources
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe, remove
from vicinal.cluster.vm.libvirt.side import Side
from vicinal.labs.programs import mpi_program, read_records
from vicinal.launch.guest_job import job_command
from vicinal.mpi.job import Job
from vicinal.mpi.libraries import Mpi
from vicinal.region import Member, create, inspect
from vicinal.region.format import Route, SlotState

# The host's ssh connection to a VM outlives the process that starts it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

JOB_SECONDS = 7200  # the test ends it earlier
RANKS = 3
ENDED = "the job has ended"


@dataclass
class Hosts:
    """The VM that moves, as described on each of the two hosts."""

    trial: Trial
    here: LocalMigrationHost
    there: LocalMigrationHost

    def members(self, part: LocalMigrationHost) -> dict[int, Member]:
        """The members of a host's region by rank."""
        path = Path("/dev/shm") / str(part.vm.region)
        members = inspect(path).members
        return {
            each.rank: each
            for each in members
            if each.state is SlotState.JOINED and each.rank is not None
        }

    def routes(self) -> dict[tuple[int, int], tuple[Route, int]]:
        """The connections of ranks in the first host's region, with their message counts."""
        state = inspect(self.trial.region)
        ranks = {member.slot: rank for rank, member in self.members(self.here).items()}
        return {
            (ranks[each.sender], ranks[each.receiver]): (each.route, each.messages)
            for each in state.connections
            if each.sender in ranks and each.receiver in ranks and each.sender != each.receiver
        }


class Misfit(LocalMigrationHost):
    """A host whose region is smaller than the VM's description says."""

    def check_comes(self) -> None:
        """Skip the early check, so that the move fails late."""

    def side(self) -> Side:
        file = Path("/dev/shm") / str(self.vm.region)
        return replace(
            LocalMigrationHost(replace(self.vm, region=None)).side(),
            region=SharedRegion(file.name, 1 << 20),
        )


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Each test leaves the VMs where they were, and the fixture finally stops them."""
    with ExitStack() as stack:
        stack.callback(gc.collect)  # warnings about that ssh come while they are ignored
        here_uri, there_uri = (stack.enter_context(private_daemon()) for _ in range(2))
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="vicinal-"))
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        monkeypatch.setenv("LIBVIRT_DEFAULT_URI", here_uri)
        monkeypatch.setenv("XDG_STATE_HOME", f"{name}/state")
        trial = Trial(Path(name))
        stack.callback(trial.call, "down", trial.name)
        trial.call("up", trial.write(count=RANKS))
        entries = journal_of(trial.name).entries()
        resource = recorded_resources(entries)["vm/vm2"]
        assert isinstance(resource, VmResource)
        vm = resource.vm
        other = another_host(vm, there_uri, Path(name) / "there")
        stack.callback(take_away, other)
        yield Hosts(trial, LocalMigrationHost(vm), LocalMigrationHost(other))


def another_host(vm: Vm, uri: str, directory: Path) -> Vm:
    """The VM for a host with the same keys and a region of its own."""
    directory.mkdir()
    theirs = Files(directory)
    for file in (vm.files.kernel, vm.files.system):
        os.link(file, directory / file.name)
    for file in vm.files.directory.iterdir():
        if file.is_file() and not (directory / file.name).exists():
            shutil.copy2(file, directory / file.name)
    theirs.console(vm.name).unlink()
    region = f"{vm.region}-there"
    create(Path("/dev/shm") / region, members=8, for_guests=True)
    return replace(vm, uri=uri, directory=str(directory), region=region)


def take_away(vm: Vm) -> None:
    end_guest_ssh(vm)
    remove(hypervisor_at(vm.uri), vm.domain)
    (Path("/dev/shm") / str(vm.region)).unlink()


def start_job(trial: Trial) -> None:
    """Start a job inside the first VM, where it outlives the command that starts it."""
    guests = open_nodes(trial.name)
    assert isinstance(guests, VmGuests)
    program = [str(mpi_program(Mpi.MPICH, "soak")), str(JOB_SECONDS)]
    command, environment = job_command(Job(program=program, ranks=RANKS, mpi=Mpi.MPICH), guests)
    variables = [f"{key}={value}" for key, value in environment.items()]
    line = shlex.join(["env", *variables, *command])
    script = f"({line}; echo {ENDED} with $?) >/tmp/output 2>&1 </dev/null &"
    trial.call("exec", "vm0", "sh", "-c", f"trap '' HUP; {script}")


def output(trial: Trial) -> str:
    return trial.call("exec", "vm0", "cat", "/tmp/output").stdout


def wait_until(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def all_talk(hosts: Hosts) -> bool:
    """Whether each rank sends to each other through the first host's region."""
    found = [route for route, messages in hosts.routes().values() if messages > 0]
    return len(found) == RANKS * (RANKS - 1) and set(found) == {Route.REGION}


def go_on_apart(hosts: Hosts) -> None:
    """The ranks continue, with one of them on the other host."""
    assert set(hosts.members(hosts.here)) == {0, 1}
    assert set(hosts.members(hosts.there)) == {2}
    # The remaining ranks always use their region. A rank of this job has few messages in flight to
    # all others at a time. So their progress shows that the moved rank takes part.
    before = hosts.routes()
    assert {route for route, _ in before.values()} == {Route.REGION}, before
    wait_until("messages go on", lambda: hosts.routes()[0, 1][1] > before[0, 1][1] + 200)


def end_job(trial: Trial) -> None:
    """Let its ranks report the received bytes, each of which they checked."""
    trial.call("exec", "vm0", "sh", "-c", "kill -USR2 $(pidof soak)")
    wait_until("the job has ended", lambda: ENDED in output(trial))
    printed = output(trial)
    assert f"{ENDED} with 0" in printed, printed
    (record,) = read_records(printed)
    print(json.dumps(record))
    assert record["errors"] == 0
    assert record["sent"] == record["received"] > 100


def test_a_job_goes_on_while_its_vm_moves(hosts: Hosts) -> None:
    trial, here, there = hosts.trial, hosts.here, hosts.there
    start_job(trial)
    wait_until("all ranks talk", lambda: all_talk(hosts))
    end_guest_ssh(here.vm)  # as if no command were left

    for source, target in ((here, there), (there, here), (here, there)):
        report = move_vm(source, target, say=print)
        print(report)
        assert ENDED not in output(trial), output(trial)
        assert (report.ranks, report.back) == (1, Return(back=1, out=0))
        assert observe(hypervisor_at(source.vm.uri), source.domain) is DomainState.ABSENT
        if target is here:
            wait_until("all ranks talk again", lambda: all_talk(hosts))
            assert hosts.members(there) == {}
        else:
            go_on_apart(hosts)
        end_guest_ssh(target.vm)

    end_job(trial)
    report = move_vm(there, here, say=print)
    print(report)
    assert (report.ranks, report.back) == (0, Return(0, 0))
    # The VM belongs to the cluster as before. Each QEMU truncates its console, which no longer
    # says that the VM has booted. The command records that (cluster/hosts/moving.py).
    planned = trial.call("plan", trial.file, status=None).stdout
    assert "  vm/vm2\n" in planned, planned
    assert "to create" not in planned, planned
    assert GuestSsh(here.vm).alive


def test_what_fails_leaves_the_job_as_it_was(hosts: Hosts) -> None:
    trial, here, there = hosts.trial, hosts.here, hosts.there
    start_job(trial)
    wait_until("all ranks talk", lambda: all_talk(hosts))
    short = Path("/dev/shm") / f"{here.vm.region}-short"
    short.write_bytes(bytes(4096))
    try:
        with pytest.raises(VicinalError, match="cannot be attached"):
            move_vm(here, Misfit(replace(there.vm, region=short.name)), say=print)
    finally:
        short.unlink()
    assert observe(hypervisor_at(there.vm.uri), there.domain) is DomainState.ABSENT
    wait_until("all ranks talk again", lambda: all_talk(hosts))
    end_job(trial)


def test_who_cannot_move_is_told(hosts: Hosts) -> None:
    here, there = hosts.here, hosts.there
    wired = LocalMigrationHost(replace(here.vm, bridge=None))
    with pytest.raises(VicinalError, match="wires join vm2 to other VMs"):
        move_vm(wired, there)
    module = LocalMigrationHost(replace(here.vm, region_device="nvdimm"))
    with pytest.raises(VicinalError, match="as nvdimm, which a running VM"):
        move_vm(module, there)
    with pytest.raises(VicinalError, match=r"a domain .* exists already"):
        move_vm(here, here)
    large = LocalMigrationHost(replace(there.vm, memory_mib=1 << 30))
    with pytest.raises(VicinalError, match="of memory, and"):
        move_vm(here, large)
    lost = LocalMigrationHost(replace(there.vm, bridge="vicinal-nowhere"))
    with pytest.raises(VicinalError, match="there is no bridge 'vicinal-nowhere'"):
        move_vm(here, lost)
    hosts.trial.call("stop", hosts.trial.name)
    with pytest.raises(VicinalError, match="vm2 does not run, its state is off"):
        move_vm(here, there)
