"""Keeping all virtual machines of a cluster as they stand, jobs and all, to let them go on later.

They stand still before the first is saved, and go on after the last has come back. So nothing that
runs in them misses another meanwhile, and their region, which each is saved with, is the same for
all: nobody writes there any more. Ranks stay in it, and know nothing of this.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.links import check_link
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.way_in import QUIET_SECONDS, check_unused, end_way_in


class Saving:
    """The steps for machines of one host, which those of other hosts may be saved with.

    Each can be repeated. libvirt is loaded in them: whoever has no virtual machines needs none.
    """

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self._marked: set[str] = set()
        """Those that had no mark before."""

    def check(self) -> None:
        """Raise VicinalError where one cannot be saved, or a command of this host is in it."""
        from vicinal.cluster.vm.libvirt.lifecycle import check_may_be_saved

        for machine in self.machines:
            check_may_be_saved(hypervisor_at(machine.uri), machine.domain)
            check_unused(machine)

    def disconnect(self) -> None:
        """End the host's connections to them: a saved guest does not see that they end."""
        for machine in self.machines:
            end_way_in(machine)
        time.sleep(QUIET_SECONDS)

    def stand_still(self) -> None:
        """Have all stand still."""
        from vicinal.cluster.vm.libvirt.lifecycle import suspend

        for machine in self.machines:
            suspend(hypervisor_at(machine.uri), machine.domain)

    def save(self) -> None:
        """Keep the memory of each, and end it. They stand still, and so do all others."""
        from vicinal.cluster.vm.libvirt.lifecycle import save

        for machine in self.machines:
            if not machine.saved.exists():
                self._marked.add(machine.name)
                machine.saved.touch()
            save(hypervisor_at(machine.uri), machine.domain, with_region=True)

    def bring_back(self, show: Callable[[Machine], None] = lambda _: None) -> None:
        """Have those that are saved stand still again; `show` is told of each.

        Raises the first VicinalError after all others have come back.
        """
        _each_of(lambda machine: self._bring_back(machine, show), self.machines)

    def go_on(self) -> None:
        """Let those that stand still go on. Raises the first VicinalError after all others do."""
        from vicinal.cluster.vm.libvirt.lifecycle import resume

        _each_of(lambda machine: resume(hypervisor_at(machine.uri), machine.domain), self.machines)

    def undo(self) -> None:
        """Let all go on. Raises VicinalError where one does not come back: none goes on before it.

        Else it would bring the region as it was before the others wrote there.
        """
        self.bring_back()
        self.go_on()

    def check_room(self) -> None:
        """Raise VicinalError where this host has too little memory for those that are saved."""
        check_room([machine for machine in self.machines if self._is(machine, "saved")])

    @property
    def all_run(self) -> bool:
        """Whether all of them run, and there are some."""
        return 0 < len(self.machines) == self.count("running")

    def count(self, state: str) -> int:
        """How many of them are in a state, by its name: lifecycle.DomainState."""
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
        elif machine.name in self._marked:  # its QEMU is the same, and so is its console
            machine.saved.unlink(missing_ok=True)


def save_machines(machines: Sequence[Machine]) -> None:
    """Keep the memory of machines that run, which are all of their cluster, and end them.

    Raises VicinalError where a command of this host is in a machine, or one cannot be saved: all of
    them then run on as before.
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
                f"{first}; {other.message}; no machine goes on before all do",
                f"{other.remedy}; then `vicinal start` lets them",
            ) from error
        raise


def _each_of(do: Callable[[Machine], None], machines: Iterable[Machine]) -> None:
    """Do something with all machines. Raises the first VicinalError when it was done with all."""
    failure: VicinalError | None = None
    for machine in machines:
        try:
            do(machine)
        except VicinalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
