"""Saving all virtual machines of a cluster with their jobs, so that they can continue later.

All machines are paused before the first is saved, and resume after the last is restored. So a
program in one machine never misses another machine. Each machine is saved with the shared region,
and all save the same contents, because no machine writes there any more. Ranks stay members of
the region, and do not notice the saving.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.guest_ssh import QUIET_SECONDS, check_unused, end_guest_ssh
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.links import check_link
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.memory import check_room


class Saving:
    """The steps for the machines of one host, which can be combined with the steps of other hosts.

    Each step can be repeated. The steps import libvirt, because a cluster without virtual machines
    needs none.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self._marked: set[str] = set()
        """Names of machines whose file `saved` did not exist before."""

    def check(self) -> None:
        """Raise VicinalError if a machine cannot be saved, or a command of this host runs in it."""
        from vicinal.cluster.vm.libvirt.lifecycle import check_may_be_saved

        for machine in self.machines:
            check_may_be_saved(hypervisor_at(machine.uri), machine.domain)
            check_unused(machine)

    def disconnect(self) -> None:
        """End the host's connections, because a saved guest does not notice their end."""
        for machine in self.machines:
            end_guest_ssh(machine)
        time.sleep(QUIET_SECONDS)

    def stand_still(self) -> None:
        """Pause all machines."""
        from vicinal.cluster.vm.libvirt.lifecycle import suspend

        for machine in self.machines:
            suspend(hypervisor_at(machine.uri), machine.domain)

    def save(self) -> None:
        """Save the memory of each machine, and end it. All machines of the cluster are paused."""
        from vicinal.cluster.vm.libvirt.lifecycle import save

        for machine in self.machines:
            if not machine.saved.exists():
                self._marked.add(machine.name)
                machine.saved.touch()
            save(hypervisor_at(machine.uri), machine.domain, with_region=True)

    def bring_back(self, show: Callable[[Machine], None] = lambda _: None) -> None:
        """Restore the saved machines in the paused state; `show` receives each machine.

        Continues after an error, and then raises the first VicinalError.
        """
        _each_of(lambda machine: self._bring_back(machine, show), self.machines)

    def go_on(self) -> None:
        """Resume the paused machines. Continues after an error, then raises the first."""
        from vicinal.cluster.vm.libvirt.lifecycle import resume

        _each_of(lambda machine: resume(hypervisor_at(machine.uri), machine.domain), self.machines)

    def undo(self) -> None:
        """Restore and resume all machines. Raises VicinalError if a machine is not restored.

        In that case no machine resumes: a machine that is restored later would overwrite the region
        with its contents from before the other machines resumed.
        """
        self.bring_back()
        self.go_on()

    def check_room(self) -> None:
        """Raise VicinalError if this host has too little memory for the saved machines."""
        check_room([machine for machine in self.machines if self._is(machine, "saved")])

    @property
    def all_run(self) -> bool:
        """Whether there are machines and all of them run."""
        return 0 < len(self.machines) == self.count("running")

    def count(self, state: str) -> int:
        """The number of machines in a state, given as a name of lifecycle.DomainState."""
        return sum(self._is(machine, state) for machine in self.machines)

    @staticmethod
    def _is(machine: Machine, state: str) -> bool:
        from vicinal.cluster.vm.libvirt.lifecycle import observe

        return observe(hypervisor_at(machine.uri), machine.domain) == state

    def _bring_back(self, machine: Machine, show: Callable[[Machine], None]) -> None:
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe, restore

        hypervisor = hypervisor_at(machine.uri)
        if observe(hypervisor, machine.domain) is DomainState.SAVED:
            show(machine)
            check_link(machine.uri, machine.link, starts=True)
            restore(hypervisor, machine.domain, paused=True)
            self._marked.discard(machine.name)
        elif machine.name in self._marked:  # its QEMU did not end, so its console is intact
            machine.saved.unlink(missing_ok=True)


def save_machines(machines: Sequence[Machine]) -> None:
    """Save the memory of all machines of a cluster, which run, and end them.

    Raises VicinalError if a command of this host runs in a machine, or a machine cannot be saved.
    All machines then run on as before.
    """
    saving = Saving(machines)
    saving.check()
    saving.disconnect()
    try:
        saving.stand_still()
        saving.save()
    except BaseException as error:
        try:
            saving.undo()
        except VicinalError as other:
            first = error.message if isinstance(error, VicinalError) else "it was interrupted"
            raise VicinalError(
                f"{first}; {other.message}; no machine resumes before all can",
                f"{other.remedy}; then `vicinal start` resumes them",
            ) from error
        raise


def _each_of(do: Callable[[Machine], None], machines: Iterable[Machine]) -> None:
    """Do something with all machines, and then raise the first VicinalError, if any."""
    failure: VicinalError | None = None
    for machine in machines:
        try:
            do(machine)
        except VicinalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
