"""What each back end checks before it makes anything: tools, files, memory, devices, ports."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from checks.leftovers import new_shared_path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import RUNTIMES
from vicinal.cluster.nodes.container.spec import Bind, ContainerSpec
from vicinal.cluster.nodes.vm.network import FarVm, Link
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.cluster.plan.resource import Held, Resource
from vicinal.cluster.resources.bridge import BridgeResource
from vicinal.cluster.resources.containers import ContainerResource, ContainersResource
from vicinal.cluster.resources.host_node import HostNodeResource
from vicinal.cluster.resources.keys import KeysResource
from vicinal.cluster.resources.region import RegionResource
from vicinal.cluster.resources.vfs import CardResource
from vicinal.cluster.resources.vms import VmResource, VmsResource
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.host.vf import helper

NOTHING = Held()
HUGE = 1 << 60


def complaints(resource: Resource, released: Held = NOTHING) -> list[str]:
    try:
        resource.check(released)
    except VicinalError as error:
        return [each.message for each in error.each]
    return []


def vm(**values: object) -> Vm:
    given = {"owner": "0-solar", "name": "vm", "number": 0, "peers": (), "uri": "qemu:///session"}
    return Vm(**(given | {"directory": "/tmp/solar", "cpus": 1, "memory_mib": 64} | values))  # type: ignore[arg-type]


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    containers = ("nodes.container.choice", "nodes.container.head_process")
    for module in (*containers, "nodes.host.node", "resources.bridge"):
        monkeypatch.setattr(f"vicinal.cluster.{module}.find_tool", lambda _: None)


@pytest.mark.usefixtures("no_tools")
def test_missing_tools_are_seen(tmp_path: Path) -> None:
    spec = ContainerSpec("solar", "node")
    first: list[tuple[Resource, str]] = [
        (HostNodeResource("solar", "node", (0,)), "the tool taskset was not found"),
        (ContainersResource("solar", tmp_path), "the tool nsenter was not found"),
        (ContainerResource(spec, None, tmp_path), "no container runtime was found"),
        *(
            (ContainerResource(spec, each, tmp_path), f"the container runtime {each} was not found")
            for each in RUNTIMES
        ),
        (BridgeResource("vicinal-1", "0-solar"), "`ip` was not found"),
        (KeysResource(tmp_path / "keys"), "ssh-keygen was not found"),
    ]
    for resource, complaint in first:
        assert complaints(resource) == [complaint]


@pytest.mark.usefixtures("no_tools")
def test_what_vms_lack_is_told_together(tmp_path: Path) -> None:
    find_qemu.cache_clear()
    long = str(tmp_path / ("a" * 100))
    found = complaints(VmsResource.of((vm(directory=long, uri="test:///default"),)))
    assert found[:2] == ["qemu-system-x86_64 was not found", "ssh-keygen was not found"]
    assert "is not a connection to QEMU" in found[2]
    assert "bytes too long for sockets in it" in found[3]


def test_all_that_a_container_would_not_see_is_told(tmp_path: Path) -> None:
    binds = (Bind("/missing/one", "/one"), Bind(str(tmp_path), "/here"), Bind("/missing/2", "/2"))
    spec = ContainerSpec("solar", "node", root="/missing/root", binds=binds)
    found = complaints(ContainerResource(spec, None, tmp_path))
    assert [each.partition(" ")[0] for each in found] == [
        "/missing/root",
        "/missing/one",
        "/missing/2",
    ]


def test_who_may_not_change_vfs_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(helper, "INSTALLED", tmp_path / "helper")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    card = CardResource("solar", "0000:03:00.0", 2)
    (found,) = complaints(card)
    assert found.endswith(f"sudo did not run the helper ({tmp_path}/helper does not exist)")
    (tmp_path / "helper").mkdir()
    assert complaints(card) == []
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert complaints(card) == ["changing SR-IOV VFs needs root, and sudo was not found"]


def region(path: Path, members: int = 4, section_bytes: int = 960 << 10) -> RegionResource:
    return RegionResource(
        path, members=members, section_bytes=section_bytes, heap_bytes=0, label="solar"
    )


def test_a_region_has_room_if_what_others_release_is_enough() -> None:
    path = new_shared_path()
    large = region(path, 512, 1 << 30)
    assert "and the region takes 512.0 GiB" in complaints(large)[0]
    assert complaints(large, Held(shared_bytes=HUGE)) == []
    # Memory that other resources release does not make a small file system larger.
    assert complaints(large, Held(memory_bytes=HUGE)) != []
    assert complaints(region(path)) == []
    assert not path.exists()
    made = region(path)
    made.create()
    try:
        assert made.held.shared_bytes == path.stat().st_blocks * 512 == made.file_bytes
    finally:
        made.remove()
    assert made.held == NOTHING


def test_a_directory_that_is_not_there_has_no_region() -> None:
    assert complaints(region(Path("/missing/region"))) == [
        "cannot create /missing/region: no such file or directory"
    ]


def test_a_port_of_a_wire_is_free_or_released() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        far = FarVm(1, "127.0.0.1", "127.0.0.2", port)
        wired = VmResource(vm(far=(far,)))
        assert complaints(wired) == [
            f"UDP port {port} of 127.0.0.1 cannot be used (address already in use)"
        ]
        released = Held(frozenset({f"UDP port 127.0.0.1:{port}"}))
        assert complaints(wired, released) == []
    assert complaints(wired) == []


def test_devices_taps_and_ports_of_a_vm_are_looked_at_together() -> None:
    wanted = vm(
        device="0000:ff:1f.7",
        link=Link("02:00:00:00:00:01", tap="no-such-tap"),
        far=(FarVm(1, "192.0.2.1", "192.0.2.2", 10240),),
    )
    found = complaints(VmResource(wanted))
    assert [each[:24] for each in found] == [
        "there is no tap 'no-such",
        "0000:ff:1f.7 is no netwo",
        "UDP port 10240 of 192.0.",
    ]
    released = Held(frozenset({"device 0000:ff:1f.7"}))
    assert len(complaints(VmResource(wanted), released)) == 2
