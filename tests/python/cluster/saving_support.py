"""Two hosts with virtual machines, for tests of saving them, in one process.

libvirt's test driver, which runs nothing, is the libvirt of both hosts. The hosts' steps and the
journals are real. A request to a host is answered at once.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster_file_support import host as processors

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts.connection import Listener, Outcomes, Request
from vicinal.cluster.hosts.host_part import Whole, host_part_of
from vicinal.cluster.hosts.record import HostRecord, is_half_saved, is_saved
from vicinal.cluster.hosts.saving import SaveStep, SaveSteps, restore_over_hosts, save_over_hosts
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.journal import Event
from vicinal.cluster.plan.state import journal_of
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vms import VmResource
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.libvirt import lifecycle
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.lifecycle import DomainState

NAME = "lab"
FILE = """name: lab
hosts: [{name: a, address: 10.0.0.1}, {name: b, address: 10.0.0.2}]
nodes: [{name: vm, backend: vm, count: 4, memory: 64M}]
hypervisor: qemu:///session
region: none
"""


class Killed(BaseException):
    """Ends the command as SIGKILL does: its handlers roll nothing back."""


class Lab:
    """Two hosts: vm0 and vm1 are on a, vm2 and vm3 on b. `log` has all actions, in order."""

    def __init__(self, cluster: Cluster, hypervisor: Hypervisor) -> None:
        self.hypervisor = hypervisor
        self.vms: dict[str, Vm] = {}
        self.log: list[str] = []
        self.stop_at: Callable[[str], None] = lambda _: None
        self.agents: list[Agent] = []
        self.lost: set[str] = set()
        self.dead = False
        """Whether the command was killed."""
        self.checked = True
        """Whether to check that each action comes at the right time."""
        for name in ("a", "b"):
            self._make(cluster, name)
        self.journal = journal_of(NAME)

    def _make(self, cluster: Cluster, name: str) -> None:
        keys = {"user-key.pub": "u", "host-key.pub": "h"}
        whole = Whole(cluster, {"a": "10.0.0.1", "b": "10.0.0.2"}, keys)
        host_part = host_part_of(json.loads(json.dumps(whole.request(name, with_keys=False))))
        cpus, numa = processors(1, 4, 1)
        journal, vms = journal_of(f"{NAME}.{name}"), []
        for resource in desired_resources(host_part, cpus, numa):
            journal.write(resource, Event.MADE)
            if isinstance(resource, VmResource):
                vms.append(self._start(resource.vm))
        nodes = tuple(each.name for each in vms)
        record = HostRecord(NAME, name, nodes, nodes, (), "", "qemu:///session")
        journal_of(NAME).write(record, Event.MADE)

    def _start(self, vm: Vm) -> Vm:
        boot = DirectBoot(Path("/boot/kernel"), Path("/boot/initrd"))
        console = Path("/console")
        spec = DomainSpec(
            name=vm.domain,
            cluster=vm.owner,
            node=vm.name,
            boot=boot,
            console=console,
        )
        lifecycle.define(self.hypervisor, spec)
        lifecycle.start(self.hypervisor, vm.domain)
        vm.files.directory.mkdir(parents=True, exist_ok=True)
        self.vms[vm.name] = vm
        return vm

    def states(self) -> dict[str, DomainState]:
        return {
            name: lifecycle.observe(self.hypervisor, vm.domain) for name, vm in self.vms.items()
        }

    def before(self, domain: str, what: str) -> None:
        """Log an action on a VM, and check its order. Fail first if the test wants that."""
        done = f"{domain.rpartition('-')[2]} {what}"
        self.stop_at(done)
        self.log.append(done)
        if self.checked and what == "is saved":
            assert DomainState.RUNNING not in self.states().values(), self.log
        if self.checked and what == "goes on":
            assert DomainState.SAVED not in self.states().values(), self.log

    @contextmanager
    def connected(self, hosts: Sequence[str]) -> Iterator[list["Agent"]]:
        """The agents of hosts, in this process. The agents notice the end of the command."""
        self.agents = [Agent(self, name) for name in hosts]
        try:
            yield self.agents
        except Killed:
            raise  # the test that killed the command decides what happens to the agents
        except BaseException:
            self.hang_up()
            raise
        else:
            self.hang_up()

    def hang_up(self) -> None:
        # Each host notices the end of the command by itself. So some VMs resume before others
        # are restored.
        self.checked, before = False, self.checked
        while self.agents:
            self.agents.pop().close()
        self.checked = before

    def is_killed(self) -> None:
        """End the killed command's connections to its agents, and prepare for the next command."""
        self.stop_at = lambda _: None
        self.hang_up()
        self.dead = False

    def kill_agents(self) -> None:
        """Kill the agents together with the command."""
        self.stop_at, self.dead = lambda _: None, False
        while self.agents:
            self.agents.pop().kill()

    def save(self) -> None:
        save_over_hosts(NAME, self.journal)

    def restore(self) -> None:
        restore_over_hosts(NAME, self.journal)

    def check(self, states: dict[str, DomainState], *, saved: bool = False) -> None:
        """Check that all VMs have these states, and that no command has to repair anything."""
        assert self.states() == states, self.log
        entries = self.journal.entries()
        assert is_saved(entries) == saved
        assert not is_half_saved(entries)


class Agent:
    """A host's agent, which answers each request at once."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self._lab = lab
        self._steps: SaveSteps | None = None

    def hello(self) -> None:
        if self.name in self._lab.lost:
            raise VicinalError(f"host {self.name}: ssh does not reach it", "see why")

    def ask_openly(self, request: Request, values: dict[str, Any], _: Listener) -> dict[str, Any]:
        try:
            return self._do(request, values)
        except VicinalError as error:
            self.hello()
            return {"error": error.message, "remedy": error.remedy}

    def _do(self, request: Request, values: dict[str, Any]) -> dict[str, Any]:
        self.hello()
        assert request is Request.SAVE
        if self._lab.dead:
            raise Killed
        if self._steps is None:
            self._steps = SaveSteps(values["host_part"], lambda _: None)
        try:
            answer = self._steps.do(SaveStep(values["step"]))
        except Killed:
            self._lab.dead = True
            raise
        found: dict[str, Any] = json.loads(json.dumps(answer))
        return found

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()

    def kill(self) -> None:
        if self._steps is not None:
            self._steps._lock.close()  # as the kernel does at the end of a process


def ask_in_order(
    connections: Sequence[Agent], work: Callable[[Agent, Listener], Any], _: object = None
) -> Outcomes[Any]:
    """Stand in for ask_all(), but ask one host after the other, so that the order is known."""
    outcomes: Outcomes[Any] = Outcomes()
    for each in connections:
        try:
            outcomes.answers[each.name] = work(each, Listener())
        except VicinalError as error:
            outcomes.errors[each.name] = error
    return outcomes
