"""The placement of a VM's threads and its region's memory: requested, refused, in the domain.

The documents are composed as OpenNebula's sources write them for each PIN_POLICY.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import libvirt
import pytest
from opennebula_support import Host, asks, deployment_file, error_text, vm_document

from vicinal.base.errors import VicinalError
from vicinal.host.system import Host as System
from vicinal.host.topology import Cpu, read_nodes
from vicinal.integrations.opennebula import records
from vicinal.integrations.opennebula.deploy import (
    Pinning,
    Topology,
    VirtualNode,
    find_tags,
    pinned,
    read_pinning,
    read_topology,
)
from vicinal.integrations.opennebula.installation import Installation
from vicinal.integrations.opennebula.request import Limits, RegionRequest
from vicinal.region.creation import create

NODE = "<VICINAL_PINNING><PROCESSORS>NODE</PROCESSORS></VICINAL_PINNING>"
SIBLING = "<VICINAL_PINNING><EMULATOR>SIBLING</EMULATOR></VICINAL_PINNING>"
TOPOLOGY = "<TOPOLOGY><PIN_POLICY><![CDATA[{policy}]]></PIN_POLICY></TOPOLOGY>"
NUMA_NODE = """<NUMA_NODE><CPUS><![CDATA[{cpus}]]></CPUS><MEMORY><![CDATA[262144]]></MEMORY>
<MEMORY_NODE_ID><![CDATA[{node}]]></MEMORY_NODE_ID><NODE_ID><![CDATA[{node}]]></NODE_ID>
<TOTAL_CPUS><![CDATA[{total}]]></TOTAL_CPUS></NUMA_NODE>"""
HUGE = TOPOLOGY.format(policy="NONE") + NUMA_NODE.format(cpus="0,2,4,6", node=0, total=2)
"""A VM with huge pages that is not pinned: the node's processors, without the reserved ones."""
CORES = TOPOLOGY.format(policy="CORE") + NUMA_NODE.format(cpus="2,3", node=0, total=2)
BOTH, PROCESSORS, EMULATOR = Pinning(True, True), Pinning(True, False), Pinning(False, True)
THREADS = [Cpu(each, each % 4, 0, (each % 4, each % 4 + 4)) for each in range(8)]
"""A host of four cores, with two threads each."""


def asked(text: str) -> Pinning | None:
    return read_pinning(vm_document(42, 5, text).encode())


def topology(chosen: str) -> Topology:
    return read_topology(vm_document(42, 5, "", chosen).encode())


def floating() -> bytes:
    """The deployment file of a VM that is not pinned."""
    return b"".join(
        line for line in deployment_file(42).encode().splitlines(True) if b"pin " not in line
    )


def tune(document: bytes) -> list[tuple[str, dict[str, str]]]:
    pins = ElementTree.fromstring(document).findall("cputune/*")
    return [(each.tag, each.attrib) for each in pins if each.tag != "shares"]


def test_what_is_asked_for_is_read() -> None:
    assert asked("") is None
    assert asked(asks()) is None
    assert asked(NODE + asks()) == PROCESSORS
    assert asked(SIBLING) == EMULATOR


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NODE + SIBLING, "2 times"),
        (NODE.replace("NODE", "node"), "write PROCESSORS"),
        (NODE.replace(">NODE<", "> <"), "write PROCESSORS"),
        (NODE.replace(">NODE<", ">NODE 0-7<"), "write PROCESSORS"),
        (SIBLING.replace("SIBLING", "0"), "write EMULATOR"),
        (SIBLING.replace("SIBLING", "'/&gt;"), "write EMULATOR"),
        (NODE.replace("</PROCESSORS>", "</PROCESSORS><EMULATOR>SIBLING</EMULATOR>"), "or EMULATOR"),
        ("<VICINAL_PINNING/>", "no parts"),
        ("<VICINAL_PINNING>CORE</VICINAL_PINNING>", "no vector"),
        ("<VICINAL_PINNING><CPUS>0-7</CPUS></VICINAL_PINNING>", "PROCESSORS, EMULATOR"),
    ],
)
def test_what_is_none_of_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(VicinalError) as raised:
        asked(text)
    assert said in str(raised.value)
    assert str(raised.value).isprintable()


def test_what_the_scheduler_has_chosen_is_read() -> None:
    assert topology("") == Topology("NONE", ())
    assert topology(CORES) == Topology("CORE", (VirtualNode(2, (2, 3), 0),))
    two = NUMA_NODE.format(cpus="8", node=1, total=1)
    assert topology(CORES + two).memory_nodes == (0, 1)
    assert topology(NUMA_NODE.format(cpus="", node="-1", total=2)).memory_nodes == ()


@pytest.mark.parametrize(
    "node",
    [
        {"cpus": "0-7", "node": 0, "total": 1},
        {"cpus": "0,", "node": 0, "total": 1},
        {"cpus": "1" * 9, "node": 0, "total": 1},
        {"cpus": "0'/>", "node": 0, "total": 1},
        {"cpus": "0", "node": "x", "total": 1},
        {"cpus": "0", "node": "999999", "total": 1},
        {"cpus": "0", "node": 0, "total": 99999},
    ],
)
def test_what_no_scheduler_writes_is_refused(node: dict[str, object]) -> None:
    with pytest.raises(VicinalError, match="scheduler wrote it"):
        topology(NUMA_NODE.format(**node))


def test_a_vm_with_memory_of_a_node_runs_there() -> None:
    before = floating()
    after, left = pinned(before, PROCESSORS, topology(HUGE), ())
    assert left == ""
    assert tune(after) == [
        ("vcpupin", {"vcpu": "0", "cpuset": "0,2,4,6"}),
        ("vcpupin", {"vcpu": "1", "cpuset": "0,2,4,6"}),
        ("emulatorpin", {"cpuset": "0,2,4,6"}),
    ]
    added = [line for line in after.splitlines(True) if b"pin cpuset" in line or b"vcpupin" in line]
    assert after.replace(b"".join(added).lstrip(), b"") == before
    assert understood(after) == ([{0, 2, 4, 6}, {0, 2, 4, 6}], {0, 2, 4, 6})


def test_where_the_administrator_has_emulators_they_stay() -> None:
    before = floating().replace(b"</shares>", b"</shares><emulatorpin cpuset='7'/>")
    after, _ = pinned(before, PROCESSORS, topology(HUGE), ())
    assert understood(after) == ([{0, 2, 4, 6}, {0, 2, 4, 6}], {7})


@pytest.mark.parametrize("tune", [b"", b"<cputune/>"])
def test_a_domain_without_such_settings_gets_them(tune: bytes) -> None:
    before = b"<domain><name>one-42</name>" + tune + b"</domain>"
    after, _ = pinned(before, PROCESSORS, topology(HUGE), ())
    assert len(ElementTree.fromstring(after).findall("cputune/vcpupin")) == 2


def test_others_than_the_virtual_processors_go_beside_them() -> None:
    before = deployment_file(42).encode()
    after, left = pinned(before, EMULATOR, topology(CORES), THREADS)
    assert left == ""
    assert after.replace(b'<emulatorpin cpuset="6-7" />', b"<emulatorpin cpuset='2,3'/>") == before
    assert understood(after) == ([{2}, {3}], {6, 7})


@pytest.mark.parametrize(
    ("old", "new", "host", "said"),
    [
        ("cpuset='2,3'/>", "cpuset='0'/>", THREADS, "EMULATOR_CPUS"),
        ("", "", [Cpu(each, each, 0, (each,)) for each in range(8)], "one thread"),
    ],
)
def test_they_stay_where_there_is_nothing_beside(
    old: str, new: str, host: list[Cpu], said: str
) -> None:
    before = deployment_file(42).replace(old, new).encode()
    after, left = pinned(before, EMULATOR, topology(CORES), host)
    assert after == before
    assert said in left


@pytest.mark.parametrize(
    ("document", "pinning", "chosen", "said"),
    [
        (deployment_file(42).encode(), PROCESSORS, CORES, "has pinned this VM itself"),
        (floating(), PROCESSORS, "", "HUGEPAGE_SIZE"),
        (floating(), PROCESSORS, NUMA_NODE.format(cpus="", node=0, total=2), "HUGEPAGE_SIZE"),
        (floating(), EMULATOR, HUGE, 'PIN_POLICY = "CORE"'),
        (deployment_file(42).encode(), EMULATOR, CORES.replace("CORE", "THREAD"), "no cores"),
        (
            deployment_file(42).replace("cpuset='3'", "cpuset='2-3'").encode(),
            EMULATOR,
            CORES,
            "no cores",
        ),
    ],
)
def test_what_the_scheduler_did_not_give_is_refused(
    document: bytes, pinning: Pinning, chosen: str, said: str
) -> None:
    with pytest.raises(VicinalError) as raised:
        pinned(document, pinning, topology(chosen), THREADS)
    assert said in str(raised.value)


def test_tags_are_found_whatever_stands_beside_them() -> None:
    text = b"<a><!-- <b/> --><b x='>'/><c><b/></c><b >1</b ></a>"
    found = [text[tag.start : tag.end] for tag in find_tags(text, "a", "b")]
    assert found == [b"<b x='>'/>", b"<b >1</b >"]
    assert [text[tag.start : tag.end] for tag in find_tags(text, "a")] == [text]
    assert find_tags(text, "b") == []


def understood(document: bytes) -> tuple[list[set[int]], set[int]]:
    """libvirt's result: processors of each virtual processor, and of QEMU's other threads."""
    domain = ElementTree.fromstring(document)
    # As in test_opennebula_documents.py: libvirt's schema rejects several devices elements.
    first, *more = domain.findall("devices")
    for devices in more:
        first.extend(devices)
        domain.remove(devices)
    domain.set("type", "test")
    connection = libvirt.open("test:///default")
    try:
        text = ElementTree.tostring(domain, "unicode")
        defined = connection.defineXMLFlags(text, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        kept = ElementTree.fromstring(defined.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    finally:
        connection.close()
    pins = [numbers(each.get("cpuset")) for each in kept.findall("cputune/vcpupin")]
    (emulator,) = kept.findall("cputune/emulatorpin")
    return pins, numbers(emulator.get("cpuset"))


def numbers(text: str | None) -> set[int]:
    found: set[int] = set()
    for part in (text or "").split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


# --- deployed by the real scripts ----------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path)
    Installation(found.remotes, Path(sys.executable)).install()
    return found


def deploy(host: Host, asked: str, chosen: str, given: str) -> tuple[str, str]:
    """Deploy a VM; returns the stock script's input and the messages."""
    file = host.prepare(42, asked, chosen)
    done = host.act("deploy", str(file), "node1", vm=42, given=given)
    return (file.read_text() if done.returncode == 0 else ""), done.stderr


def test_the_stock_script_gets_it_without_a_region_and_with_one(host: Host) -> None:
    before = floating().decode()
    written, _ = deploy(host, NODE, HUGE, before)
    assert len(tune(written.encode())) == 3
    assert "shmem" not in written
    assert not host.region().exists()
    host.end(42)
    written, _ = deploy(host, NODE + asks(), HUGE, before)
    assert len(tune(written.encode())) == 3
    assert "shmem" in written
    assert host.region().exists()
    host.end(42)
    assert not host.region().exists()


def test_what_cannot_be_is_told_and_nothing_is_started(host: Host) -> None:
    written, said = deploy(host, NODE + asks(), CORES, deployment_file(42))
    assert written == ""
    assert "OpenNebula has pinned this VM itself" in error_text(said)
    assert not host.region().exists()
    assert host.calls() == []


def test_a_region_comes_from_its_vms_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_policy: Callable[[], tuple[int, int]]
) -> None:
    """The memory policy during creation; tests/guests/vf/test_numa.py checks the pages."""
    seen = []

    def watched(*words: Any, **more: Any) -> object:
        seen.append(memory_policy())
        return create(*words, **more)

    monkeypatch.setattr(records, "create", watched)
    (tmp_path / "shm").mkdir()
    there = records.Records(tmp_path / "state", set, tmp_path / "shm")
    request = RegionRequest(5, "job42", 8 << 20, 16)
    with there.held(42, request, Limits(), (0,)):
        assert memory_policy() == (0, 0)
    assert seen == [(1, 1)]


def test_a_node_without_room_for_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = (each for each in read_nodes(System()) if each.number == 0)
    (tmp_path / "shm").mkdir()
    there = records.Records(tmp_path / "state", set, tmp_path / "shm")
    request = RegionRequest(5, "job42", 8 << 20, 16)
    for room, said in ((8 << 20, ""), (7 << 20, "NUMA node 0 had room for 7.0 MiB of its 8.0 MiB")):
        found = [replace(node, available_bytes=room)]
        monkeypatch.setattr(records, "read_nodes", lambda _host, found=found: found)
        with there.held(42, request, Limits(), (0,)):
            told = capsys.readouterr().err
        assert said in told
        assert bool(told) == bool(said)


def test_one_without_that_node_is_where_the_kernel_puts_it(host: Host) -> None:
    chosen = CORES.replace("<MEMORY_NODE_ID><![CDATA[0]]>", "<MEMORY_NODE_ID><![CDATA[5000]]>")
    written, said = deploy(host, asks(), chosen, deployment_file(42))
    assert "shmem" in written
    assert "the kernel chose the NUMA nodes of the region: there is no NUMA node 5000" in said
    host.end(42)
