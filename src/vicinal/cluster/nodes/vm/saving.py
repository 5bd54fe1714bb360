"""Saving all virtual machines of a cluster with their jobs, so that they can continue later.

All VMs are paused before the first is saved, and resume after the last is restored. So a
program in one VM never misses another VM. Each VM is saved with the shared region,
and all save the same contents, because no VM writes there any more. Ranks stay members of
the region, and do not notice the saving.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.guest_ssh import QUIET_SECONDS, check_unused, end_guest_ssh
from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.nodes.vm.links import check_link
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.vm import Vm


class Saving:
    """The steps for the VMs of one host, which can be combined with the steps of other hosts.

    Each step can be repeated. The steps import libvirt, because a cluster without virtual machines
    needs none.
    """

    def __init__(self, vms: Sequence[Vm]) -> None:
        self.vms = vms
        self._marked: set[str] = set()
        """Names of VMs whose file `saved` did not exist before."""

    def check(self) -> None:
        """Raise VicinalError if a VM cannot be saved, or a command of this host runs in it."""
        from vicinal.cluster.vm.libvirt.lifecycle import check_may_be_saved

        for vm in self.vms:
            check_may_be_saved(hypervisor_at(vm.uri), vm.domain)
            check_unused(vm)

    def disconnect(self) -> None:
        """End the host's connections, because a saved guest does not notice their end."""
        for vm in self.vms:
            end_guest_ssh(vm)
        time.sleep(QUIET_SECONDS)

    def stand_still(self) -> None:
        """Pause all VMs."""
        from vicinal.cluster.vm.libvirt.lifecycle import suspend

        for vm in self.vms:
            suspend(hypervisor_at(vm.uri), vm.domain)

    def save(self) -> None:
        """Save the memory of each VM, and end it. All VMs of the cluster are paused."""
        from vicinal.cluster.vm.libvirt.lifecycle import save

        for vm in self.vms:
            if not vm.saved.exists():
                self._marked.add(vm.name)
                vm.saved.touch()
            save(hypervisor_at(vm.uri), vm.domain, with_region=True)

    def bring_back(self, show: Callable[[Vm], None] = lambda _: None) -> None:
        """Restore the saved VMs in the paused state; `show` receives each VM.

        Continues after an error, and then raises the first VicinalError.
        """
        _each_of(lambda vm: self._bring_back(vm, show), self.vms)

    def go_on(self) -> None:
        """Resume the paused VMs. Continues after an error, then raises the first."""
        from vicinal.cluster.vm.libvirt.lifecycle import resume

        _each_of(lambda vm: resume(hypervisor_at(vm.uri), vm.domain), self.vms)

    def undo(self) -> None:
        """Restore and resume all VMs. Raises VicinalError if a VM is not restored.

        In that case no VM resumes: a VM that is restored later would overwrite the region
        with its contents from before the other VMs resumed.
        """
        self.bring_back()
        self.go_on()

    def check_room(self) -> None:
        """Raise VicinalError if this host has too little memory for the saved VMs."""
        check_room([vm for vm in self.vms if self._is(vm, "saved")])

    @property
    def all_run(self) -> bool:
        """Whether there are VMs and all of them run."""
        return 0 < len(self.vms) == self.count("running")

    def count(self, state: str) -> int:
        """The number of VMs in a state, given as a name of lifecycle.DomainState."""
        return sum(self._is(vm, state) for vm in self.vms)

    @staticmethod
    def _is(vm: Vm, state: str) -> bool:
        from vicinal.cluster.vm.libvirt.lifecycle import observe

        return observe(hypervisor_at(vm.uri), vm.domain) == state

    def _bring_back(self, vm: Vm, show: Callable[[Vm], None]) -> None:
        from vicinal.cluster.vm.libvirt.lifecycle import DomainState, observe, restore

        hypervisor = hypervisor_at(vm.uri)
        if observe(hypervisor, vm.domain) is DomainState.SAVED:
            show(vm)
            check_link(vm.uri, vm.link, starts=True)
            restore(hypervisor, vm.domain, paused=True)
            self._marked.discard(vm.name)
        elif vm.name in self._marked:  # its QEMU did not end, so its console is intact
            vm.saved.unlink(missing_ok=True)


def save_vms(vms: Sequence[Vm]) -> None:
    """Save the memory of all VMs of a cluster, which run, and end them.

    Raises VicinalError if a command of this host runs in a VM, or a VM cannot be saved.
    All VMs then run on as before.
    """
    saving = Saving(vms)
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
                f"{first}; {other.message}; no VM resumes before all can",
                f"{other.remedy}; then `vicinal start` resumes them",
            ) from error
        raise


def _each_of(do: Callable[[Vm], None], vms: Iterable[Vm]) -> None:
    """Do something with all VMs, and then raise the first VicinalError, if any."""
    failure: VicinalError | None = None
    for vm in vms:
        try:
            do(vm)
        except VicinalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
