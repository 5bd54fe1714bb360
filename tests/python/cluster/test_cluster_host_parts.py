"""Hosts in a cluster file, and each host's part of the cluster; no host is reached."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cluster_file_support import host, read

from vicinal.base.codec import decode, encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.hosts import ClusterHost
from vicinal.cluster.hosts.far_libvirt import uri_from_here
from vicinal.cluster.hosts.host_part import Whole, host_part_of
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.nodes.vm.from_file import vms_of
from vicinal.cluster.nodes.vm.network import FarVm, interfaces
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.vm.devices import UdpWire, Wire
from vicinal.cluster.vm.guest.identity import card_address
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml


def test_nodes_are_spread_over_hosts(tmp_path: Path) -> None:
    cluster = read(
        tmp_path,
        "name: lab\n"
        "hosts: [{name: a, address: 10.0.0.1}, {name: b, hypervisor: 'qemu:///session'}]\n"
        "nodes:\n"
        "  - {name: vm, backend: vm, count: 5}\n"
        "  - {name: m, backend: vm, host: b}\n"
        "port: 20000\n",
    )
    assert [node.host for node in cluster.nodes] == ["a", "a", "a", "b", "b", "b"]
    assert cluster.hosts == (
        ClusterHost("a", "10.0.0.1"),
        ClusterHost("b", None, "qemu:///session"),
    )
    assert cluster.port == 20000


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("hosts: [{name: a}, {name: a}]\nnodes: [{name: n}]", "yaml:2: the host a is listed twice"),
        ("hosts: [{name: alpha}]\nnodes:\n  - name: n\n    host: alpa", "yaml:5: .*mean alpha"),
        ("nodes:\n  - name: n\n    host: a", "yaml:4: .*is not under hosts: list the hosts"),
        ("hosts: [{name: a}]\nnodes: [{name: n, host: [a, a]}]", "yaml:3: .* a twice"),
        ("hosts: [{name: a}, {name: b}]\nnodes: [{name: n, host: a}]", "the host b has no nodes"),
        (
            "hosts: [{name: a, address: x}]\nnodes: [{name: n}]",
            "yaml:2: 'x' is not an IPv4 address",
        ),
        ("hosts: [{name: a, ssh: 1}]\nnodes: [{name: n}]", "yaml:2: unknown key ssh"),
        ("hosts: [{name: -oProxyCommand}]\nnodes: [{name: n}]", "hosts.0..name cannot be"),
        (
            "hosts: [{name: a, hypervisor: 'qemu:///system'}]\nnodes: [{name: n}]",
            "yaml:2: hypervisor is set, and no node of a is a virtual machine",
        ),
        ("hosts: [{name: a}]\nnodes: [{name: n}]", "n is a container on the host a"),
        ("port: 20000\nnodes: [{name: n, backend: vm}]", "yaml:2: port is for the wires"),
        (
            "hosts: [{name: a}]\nnodes: [{name: n, backend: host}, {name: m, backend: vm}]",
            "n is the host a itself, and cannot be beside m",
        ),
    ],
)
def test_what_is_wrong_with_hosts_is_said_with_its_line(
    tmp_path: Path, lines: str, complaint: str
) -> None:
    with pytest.raises(VicinalError, match=complaint):
        read(tmp_path, f"name: lab\n{lines}\n")


def test_the_part_of_a_host(tmp_path: Path) -> None:
    """Each host knows all VMs, and which wire leads to which VM."""
    cluster = read(
        tmp_path,
        "name: lab\nhosts: [{name: a}, {name: b, hypervisor: 'qemu:///session'}]\n"
        "nodes: [{name: vm, backend: vm, count: 3}]\nport: 20000\n",
    )
    keys = {"user-key.pub": "u", "host-key.pub": "h"}
    whole = Whole(cluster, {"a": "10.0.0.1", "b": "10.0.0.2"}, keys)
    asked = whole.request("b", with_keys=False)
    assert asked["keys"] is None
    host_part = host_part_of(json.loads(json.dumps(asked)))
    assert [node.name for node in host_part.nodes] == ["vm2"]
    assert (host_part.name, host_part.kept_as, host_part.hypervisor) == (
        "lab",
        "lab.b",
        "qemu:///session",
    )
    cpus, numa = host(1, 1, 2)
    [vm] = vms_of(host_part, {"vm2": ()}, "region", cpus, numa)
    assert (vm.number, vm.peers, vm.bridge) == (2, (0, 1), None)
    assert vm.far == (
        FarVm(0, "10.0.0.2", "10.0.0.1", 20001),
        FarVm(1, "10.0.0.2", "10.0.0.1", 20002),
    )
    assert decode(Vm, json.loads(json.dumps(encode(vm)))) == vm
    # Both ends of each wire agree on their addresses.
    theirs = host_part_of(json.loads(json.dumps(whole.request("a", with_keys=True))))
    for other in vms_of(theirs, {"vm0": (), "vm1": ()}, "region", cpus, numa):
        ours = vm.far[other.number]
        assert other.far == (FarVm(2, ours.other, ours.own, ours.port),)
        cards = interfaces(other.files, other.number, other.peers, None, None, other.far)
        assert [type(card) for card in cards] == [Wire, UdpWire]
        assert cards[1].mac == card_address(other.number, 2)
    kinds = [resource.key for resource in desired_resources(host_part, cpus, numa)]
    assert kinds == ["region/main", "keys/main", "vms/main", "vm/vm2", "guests/main"]


def test_wires_of_udp_as_libvirt_has_them() -> None:
    spec = DomainSpec(
        name="vicinal-0-lab-vm0",
        cluster="0-lab",
        node="vm0",
        boot=DirectBoot(Path("/kernel"), Path("/system")),
        console=Path("/console"),
        interfaces=(UdpWire("10.0.0.2", "10.0.0.1", 20001, card_address(2, 0)),),
    )
    card = ElementTree.fromstring(domain_xml(spec)).find("devices/interface")
    assert card is not None
    assert card.get("type") == "udp"
    source = card.find("source")
    assert source is not None
    assert source.attrib == {"address": "10.0.0.1", "port": "20001"}
    local = source.find("local")
    assert local is not None
    assert local.attrib == {"address": "10.0.0.2", "port": "20001"}


def test_by_which_uris_libvirt_is_reached_from_elsewhere() -> None:
    record = HostRecord("lab", "b", (), (), (), "10.0.0.2", "qemu:///system")
    assert uri_from_here(record) == "qemu+ssh://b/system?no_tty=1"
    own = replace(record, hypervisor="qemu+unix:///system?socket=/run/x")
    assert uri_from_here(own) == "qemu+ssh://b/system?socket=/run/x&no_tty=1"
    here = replace(record, host="localhost")
    assert uri_from_here(here) == "qemu:///system"
