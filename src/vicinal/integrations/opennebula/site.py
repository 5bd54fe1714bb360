"""What actions on VMs that have something of this host work with."""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.host.functions.operations import Functions
from vicinal.host.system import Host
from vicinal.integrations.opennebula.belongings import Belongings
from vicinal.integrations.opennebula.hypervisor import libvirt_uri
from vicinal.integrations.opennebula.limits import FILE, Limits, read_limits
from vicinal.integrations.opennebula.machine import Machine
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.stock import Call, given, run_stock


@dataclass(frozen=True)
class Site:
    """One host, while an action is at work."""

    hypervisor: Hypervisor
    records: Records
    limits: Limits
    functions: Callable[[], Functions] = Functions
    stock: Callable[[Call, int, bytes | None], int] = run_stock
    """Runs OpenNebula's own script."""
    given: Callable[[], bytes] = given
    host: Host = field(default_factory=Host)
    """Its processors and NUMA nodes."""

    def machine(self, vm: int) -> Machine:
        """A VM, on this host."""
        return Machine(vm, self.hypervisor, self.records, self.functions)

    def kept(
        self, vm: int, what: Belongings, nodes: Collection[int] = ()
    ) -> AbstractContextManager[int]:
        """Have for a VM what it is to get, and keep it if the VM runs here in the end.

        A region that is made for that is on these NUMA nodes.

        Raises VicinalError, with nothing made, where that cannot be had: Records.held().
        """
        self.machine(vm).expect(what)
        if what.region is None:
            return self.records.released(vm)
        return self.records.held(vm, what.region, self.limits, nodes)


@contextmanager
def site_of(call: Call, records: Records) -> Iterator[Site]:
    """This host. Raises VicinalError where libvirt does not answer."""
    with connect(libvirt_uri()) as hypervisor:
        yield Site(hypervisor, records, read_limits(call.remotes / FILE))
