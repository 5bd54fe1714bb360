"""OpenNebula's driver with real VMs: its calls, with a real libvirt and QEMU.

The driver's scripts deploy two VMs of a job, one of them pinned to a NUMA node. An MPI job verifies
its messages through the region that the driver created, and the VMs are ended. Stand-ins for the
stock scripts do by libvirt's library what OpenNebula's scripts do by virsh.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import libvirt
import pytest
from domain_scenario import enter, sees_region, two_vms
from domain_support import private_daemon
from guest_verify import BOTH_WAYS, Pair, verify
from opennebula_support import Host, asks

from vicinal.cluster.nodes.vm.pair import pair_identities
from vicinal.cluster.vm.devices import SharedRegion
from vicinal.cluster.vm.guest.identity import make_keys
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.integrations.opennebula.installation import Installation
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

_STOCK = """\
#!{python}
import os, pathlib, sys, libvirt
connection = libvirt.open(os.environ["LIBVIRT_URI"])
if pathlib.Path(sys.argv[0]).name == "deploy":
    document = sys.stdin.read()
    pathlib.Path(sys.argv[1]).write_text(document)
    print(connection.createXML(document).UUIDString())
else:
    connection.lookupByUUIDString(sys.argv[1]).destroy()
"""


NODE = "<VICINAL_PINNING><PROCESSORS>NODE</PROCESSORS></VICINAL_PINNING>"
NUMA = """<NUMA_NODE><TOTAL_CPUS>2</TOTAL_CPUS><MEMORY_NODE_ID>0</MEMORY_NODE_ID>
<CPUS>{cpu}</CPUS></NUMA_NODE>"""
"""As if OpenNebula had found one processor on the node of the VM's memory."""


def where(hypervisor: Hypervisor, uuid: str) -> list[set[int]]:
    """Allowed processors of a VM's virtual processors, and then of QEMU's other threads."""
    domain = hypervisor.connection.lookupByUUIDString(uuid)
    found = [*domain.vcpuPinInfo(), domain.emulatorPinInfo()]
    return [{number for number, may in enumerate(each) if may} for each in found]


@contextmanager
def opennebula(directory: Path, uri: str) -> Iterator[Host]:
    """A host with the driver, and stock scripts that start VMs."""
    host = Host(directory)
    for action in ("deploy", "cancel"):
        (host.remotes / "vmm/kvm" / action).write_text(_STOCK.format(python=sys.executable))
    (host.remotes / "etc/vmm/kvm/kvmrc").write_text(f"export LIBVIRT_URI='{uri}'\n")
    Installation(host.remotes, Path(sys.executable)).install()
    try:
        yield host
    finally:
        host.region().unlink(missing_ok=True)


def written(spec: DomainSpec) -> str:
    """The VM as OpenNebula writes it: devices in two places, and its own metadata."""
    domain = ElementTree.fromstring(domain_xml(spec))
    metadata = domain.find("metadata")
    devices = domain.find("devices")
    assert metadata is not None
    assert devices is not None
    ElementTree.SubElement(metadata, "{http://opennebula.org/xmlns/libvirt/1.0}vm")
    more = ElementTree.SubElement(domain, "devices")
    for channel in devices.findall("channel"):
        devices.remove(channel)
        more.append(channel)
    return ElementTree.tostring(domain, "unicode")


def deploy(
    host: Host, vm: int, document: str, more: str = "", chosen: str = ""
) -> "subprocess.CompletedProcess[str]":
    file = host.prepare(vm, asks(size="16M") + more, chosen)
    return host.act("deploy", str(file), "node1", vm=vm, given=document)


def test_vms_of_a_job_talk_through_the_region_that_the_driver_made() -> None:
    image = build_image(print)
    accelerator = choose_accelerator(find_qemu(), image, print).accelerator
    program = str(mpi_program(Mpi.MPICH, "verify"))
    with (
        private_daemon() as uri,
        tempfile.TemporaryDirectory(prefix="vicinal-") as name,
        opennebula(Path(name), uri) as host,
        connect(uri) as hypervisor,
    ):
        keys = make_keys(Path(name), pair_identities())
        unused = SharedRegion("unused", 1 << 20)
        specs = two_vms(Path(name), image, keys, accelerator, unused)
        vms = {
            number: DomainSpec(
                **{**vars(spec), "name": f"one-{number}", "region": None, "placement": Placement()}
            )
            for number, spec in enumerate(specs, 1)
        }
        uuids = {}
        cpu = max(os.sched_getaffinity(0))
        for vm, spec in vms.items():
            pinning = (NODE, NUMA.format(cpu=cpu)) if vm == 1 else ()
            done = deploy(host, vm, written(spec), *pinning)
            assert done.returncode == 0, done.stderr
            uuids[vm] = done.stdout.strip()
            assert re.fullmatch("[0-9a-f-]{36}", uuids[vm])
        assert all(threads == {cpu} for threads in where(hypervisor, uuids[1]))
        guests = [enter(hypervisor, spec, keys) for spec in vms.values()]
        assert all(sees_region(guest) for guest in guests)
        assert verify(Pair(guests, image, host.region()), program) == BOTH_WAYS
        for guest in guests:
            guest.close()

        with pytest.raises(libvirt.libvirtError, match="peer"):  # without the driver
            hypervisor.connection.lookupByUUIDString(uuids[1]).save(f"{name}/checkpoint")
        for vm in vms:
            assert host.region().exists()
            assert host.act("cancel", uuids[vm], "node1", vm=vm).returncode == 0
        assert not host.region().exists()
        assert hypervisor.connection.numOfDomains() == 0


def test_a_vm_that_libvirt_refuses_leaves_no_region() -> None:
    with (
        private_daemon() as uri,
        tempfile.TemporaryDirectory(prefix="vicinal-") as name,
        opennebula(Path(name), uri) as host,
    ):
        done = deploy(host, 1, "<domain type='qemu'><name>one-1</name></domain>")
        assert done.returncode == 1
        assert "libvirtError" in done.stderr
        assert not host.region().exists()
        assert list(host.state.glob("*.json")) == []
