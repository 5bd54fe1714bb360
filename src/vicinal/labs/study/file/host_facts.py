"""The facts about a host that the adaptation of a study needs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.host.system import Host


@dataclass(frozen=True)
class Card:
    """A network card that can have virtual functions."""

    name: str
    """The name by which a cluster file can name the card."""
    vfs: int
    """The number of VFs that it can have."""
    rdma: bool
    """Whether the card supports verbs."""


@dataclass(frozen=True)
class HostFacts:
    """Cores, memory, cards and back ends of a host, as far as studies depend on them."""

    cores: int
    """Usable cores; a core with several hardware threads counts once."""
    sockets: int
    numa_nodes: int
    memory_bytes: int
    runtimes: tuple[str, ...]
    """Container runtimes that can create nodes."""
    accelerator: Accelerator | None
    """The accelerator of virtual machines; None if none can be started."""
    no_vms: str = ""
    """Why no virtual machine can be started."""
    cards: tuple[Card, ...] = ()
    devices: tuple[str, ...] = ()
    """PCI addresses of network cards with verbs that nodes can get as a whole."""
    rdma: tuple[str, ...] = ()
    """Names of RDMA devices with an active port."""
    cache_bytes: int | None = None
    """Size of a last-level cache; None if unknown."""
    hosts: tuple[str, ...] = ()
    """Names of equal hosts for studies that need several; localhost is this one."""

    @property
    def emulated(self) -> bool:
        """Whether virtual machines have emulated processors."""
        return self.accelerator is Accelerator.TCG


def facts_to_json(facts: HostFacts) -> dict[str, Any]:
    """The facts as the manifest of a result contains them; a resumed run adapts its study
    by them.
    """
    return asdict(facts)


def facts_from_json(values: dict[str, Any]) -> HostFacts:
    """The inverse of facts_to_json(). Raises VicinalError if the values are not facts."""
    try:
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        found["cards"] = tuple(Card(**card) for card in values["cards"])
        if values["accelerator"] is not None:
            found["accelerator"] = Accelerator(values["accelerator"])
        return HostFacts(**found)
    except (KeyError, TypeError, ValueError) as error:
        raise VicinalError(
            f"the stored facts about the host cannot be read ({type(error).__name__}: {error})",
            "start a new run in another folder with --output",
        ) from error


def examine_host(hosts: Sequence[str] = ()) -> HostFacts:
    """Read the facts about this host. Starts and changes nothing.

    Whether KVM works is known if a guest was started since the host booted. Otherwise virtual
    machines are assumed to be emulated, which may be wrong.
    """
    from vicinal.cluster.nodes.container.choice import available_runtimes
    from vicinal.host.infiniband_facts import ACTIVE, read_rdma_devices
    from vicinal.host.sriov_facts import read_physical_functions
    from vicinal.host.topology import read_cpus, read_last_cache, read_nodes
    from vicinal.launch.cores import usable_cpus

    host = Host()
    usable = set(usable_cpus())
    cpus = [cpu for cpu in read_cpus(host) if cpu.number in usable]
    nodes = read_nodes(host)
    rdma = list(read_rdma_devices(host))
    accelerator, why = _accelerator()
    return HostFacts(
        cores=len({min(usable.intersection(cpu.siblings)) for cpu in cpus}) or len(usable),
        sockets=len({cpu.socket for cpu in cpus}) or 1,
        numa_nodes=sum(1 for node in nodes if usable.intersection(node.cpus)) or 1,
        memory_bytes=_memory(host),
        runtimes=tuple(runtime.name for runtime in available_runtimes()),
        accelerator=accelerator,
        no_vms=why,
        cards=tuple(
            Card(
                name=(card.device.interfaces or (card.device.address,))[0],
                vfs=card.limit,
                rdma=bool(card.device.rdma_devices),
            )
            for card in read_physical_functions(host)
            if card.limit
        ),
        devices=tuple(
            device.pci.address
            for device in rdma
            if device.pci is not None and device.pci.physical_function is None
        ),
        rdma=tuple(
            device.name for device in rdma if any(port.state == ACTIVE for port in device.ports)
        ),
        cache_bytes=read_last_cache(host, min(usable, default=0)),
        hosts=tuple(hosts),
    )


def _memory(host: Host) -> int:
    for line in (host.text("proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return 0


def _accelerator() -> tuple[Accelerator | None, str]:
    """The accelerator of virtual machines, or None and the reason why none can be started."""
    from vicinal.cluster.nodes.vm.hypervisor import check_usable
    from vicinal.cluster.vm.image.building import guests_directory
    from vicinal.cluster.vm.libvirt.uri import default_uri
    from vicinal.cluster.vm.qemu.accelerator_probe import known_choice
    from vicinal.cluster.vm.qemu.choice import find_qemu

    try:
        qemu = find_qemu()
        check_usable(default_uri())
    except VicinalError as error:
        return None, str(error)
    choice = known_choice(qemu, guests_directory())
    return (Accelerator.TCG if choice is None else choice.accelerator), ""
