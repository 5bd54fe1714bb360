"""The placement of a restored or migrated VM on hosts that number processors differently.

The tests use fakes (opennebula_lab.py) with composed topologies.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest
from fake_host import FakeHost
from opennebula_lab import NAME, Lab
from test_opennebula_moves import do_migrate, do_restore, saved

from vicinal.base.errors import VicinalError
from vicinal.host import system
from vicinal.host.memory_policy import memory_from
from vicinal.integrations.opennebula import destination, driver, records, vm
from vicinal.integrations.opennebula.call import Call
from vicinal.integrations.opennebula.held_resources import Placement, read_placement

PINS = (
    "<cputune><vcpupin vcpu='0' cpuset='4-5'/><vcpupin vcpu='1' cpuset='6,7'/>"
    "<emulatorpin cpuset='4'/></cputune>"
)
MEMORY = "<numatune><memory mode='strict' nodeset='1'/></numatune>"
BY_SOCKET, IN_TURN = ("0-3", "4-7"), ("0,2,4,6", "1,3,5,7")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(vm, "_SETTLE_SECONDS", 0.1)
    found = Lab(tmp_path)
    for each in (PINS, MEMORY):
        found.domain("a")._live.append(ElementTree.fromstring(each))
    yield found
    found.end()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The NUMA nodes on which regions were to be created."""
    found: list[tuple[int, ...]] = []

    def watched(nodes: tuple[int, ...]) -> AbstractContextManager[str]:
        found.append(tuple(nodes))
        return memory_from(())  # this host may not have the node

    monkeypatch.setattr(records, "memory_from", watched)
    return found


def compose(lab: Lab, name: str, nodes: tuple[str, ...], online: str = "0-7") -> None:
    fake = FakeHost(lab.directory / f"topology-{name}-{online}")
    fake.file("sys/devices/system/cpu/online", online)
    for number, cpus in enumerate(nodes):
        fake.node(number, cpus, "10 20")
    lab.hosts[name].host = fake.host()


def test_what_a_domain_names_is_read() -> None:
    assert read_placement("<domain/>") == Placement()
    assert read_placement(f"<domain>{PINS}{MEMORY}</domain>") == Placement((4, 5, 6, 7), (1,))
    cells = "<memnode cellid='0' mode='strict' nodeset='0'/><memnode cellid='1' nodeset='2-3'/>"
    assert read_placement(f"<domain><numatune>{cells}</numatune></domain>").nodes == (0, 2, 3)
    placed = Placement((4, 5), (1,))
    assert Placement.from_json(placed.to_json()) == placed


@pytest.mark.parametrize("cpus", [None, "0", ["0"], [-1], [True], [0.5], {"0": 1}], ids=str)
def test_another_host_is_not_believed_blindly(cpus: object) -> None:
    with pytest.raises(VicinalError, match="the VM's processors and NUMA nodes cannot be read"):
        Placement.from_json({"cpus": cpus, "nodes": []})


def test_the_region_of_a_vm_that_moves_is_on_its_node(
    lab: Lab, asked: list[tuple[int, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    compose(lab, "b", BY_SOCKET)
    assert do_migrate(lab) == 0
    assert lab.is_whole("b")
    assert asked == [(1,)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("host", ["a", "b"])
def test_so_is_that_of_one_that_is_restored(
    lab: Lab, asked: list[tuple[int, ...]], host: str
) -> None:
    saved(lab)
    compose(lab, host, BY_SOCKET)
    lab.hosts[host].prepare()
    assert do_restore(lab, host) == 0
    assert lab.is_whole(host)
    assert asked == [(1,)]


def test_one_that_is_given_what_it_lacks_by_the_next_action_too(
    lab: Lab, asked: list[tuple[int, ...]]
) -> None:
    from vicinal.integrations.opennebula.moves import repair

    what = lab.a.vm.held_resources()
    lab.a.vm.take(what)
    lab.a.region.unlink()
    for file in lab.a.records.directory.glob("*.json"):
        file.unlink()
    repair(lab.a.site, "cancel", without=99)
    assert lab.is_whole("a")
    assert asked == [(1,)]


@pytest.mark.parametrize(
    ("nodes", "online", "said"),
    [
        (("0-3",), "0-3", "one-7 runs on the processors 4-7, and this host has no 4-7: choose"),
        (("0-2", "4-6"), "0-2,4-6", "and this host has no 7"),
        (("0-7",), "0-7", "has its memory from the NUMA nodes 1, and this host has no 1"),
    ],
)
def test_a_host_without_its_processors_or_node_gets_no_vm(
    lab: Lab, nodes: tuple[str, ...], online: str, said: str
) -> None:
    """The VM keeps running on the source, or stays saved."""
    compose(lab, "b", nodes, online)
    with pytest.raises(VicinalError, match=said):
        do_migrate(lab)
    assert lab.is_whole("a")
    lab.b.clean()
    saved(lab)
    lab.b.prepare()
    with pytest.raises(VicinalError, match=said):
        do_restore(lab, "b")
    assert lab.log == []
    assert lab.checkpoint.domains.keys() == {NAME}
    assert lab.b.records.all() == []


def test_one_whose_processors_are_far_from_its_memory_there_is_told(
    lab: Lab, asked: list[tuple[int, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    compose(lab, "b", IN_TURN)
    assert do_migrate(lab) == 0
    assert lab.is_whole("b")
    assert (
        "may run on the processors 4,6, which on this host are not on the NUMA node of the VM's"
        in (capsys.readouterr().err)
    )
    assert asked == [(1,)]


def test_a_host_that_says_nothing_of_nodes_is_not_refused(lab: Lab) -> None:
    compose(lab, "b", ())
    assert do_migrate(lab) == 0
    assert lab.is_whole("b")


# --- VMs without a region and without VFs of Vicinal ---------------------------------

ASKED = "<VICINAL_PINNING><PROCESSORS>NODE</PROCESSORS></VICINAL_PINNING>"
NAMED = "<NAME>VICINAL_PINNING</NAME>"


def data(more: str, where: str = "USER_TEMPLATE") -> bytes:
    """The document that OpenNebula gives to actions on existing VMs."""
    vm = f"<VM><ID>7</ID><{where}>{more}</{where}></VM>"
    return f"<VMM_DRIVER_ACTION_DATA><HOST>a</HOST>{vm}</VMM_DRIVER_ACTION_DATA>".encode()


class _StockError(Exception):
    """Only the stock script runs, with this input."""


@pytest.fixture
def bare(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The VM is pinned to processors, and has nothing else of Vicinal."""
    with lab.a.records.released(7):
        del lab.a.fake.domains[NAME]
    lab.a.clean()
    domain = f"<domain type='kvm'><name>{NAME}</name><devices/>{PINS}{MEMORY}</domain>"
    lab.a.fake.run(NAME, domain)
    assert not lab.a.vm.held_resources()

    def stock(_: Call, document: bytes) -> NoReturn:
        raise _StockError(document)

    monkeypatch.setenv("VICINAL_OPENNEBULA_STATE", str(lab.a.records.directory))
    monkeypatch.setattr(driver, "become_stock", stock)
    monkeypatch.setattr(destination, "reached", lab.reach)
    monkeypatch.setattr(vm, "site_of", lambda *_: nullcontext(lab.a.site))
    monkeypatch.setattr(driver, "saved_description", lambda _: lab.domain("a").XMLDesc())
    lab.log.clear()
    return lab


def act(lab: Lab, action: str, given: bytes, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The input of the stock script, which must be called."""
    monkeypatch.setattr(driver, "given", lambda: given)
    monkeypatch.setattr(system, "Host", lambda: lab.b.host)
    arguments = {"migrate": (NAME, "b", "a"), "restore": ("/checkpoint", "b", NAME)}[action]
    with pytest.raises(_StockError) as called:
        driver.perform(lab.a.call(action, *arguments))
    return bytes(called.value.args[0])


@pytest.mark.parametrize("action", ["migrate", "restore"])
@pytest.mark.parametrize(
    ("given", "checked"),
    [
        (data(ASKED), True),
        (data(NAMED), False),
        (data(ASKED, "TEMPLATE"), False),
        (data(""), False),
        (ASKED.encode(), False),
        (b"VICINAL_PINNING", False),
        (b"", False),
    ],
)
def test_one_that_has_only_asked_for_processors_finds_them_there(
    bare: Lab, monkeypatch: pytest.MonkeyPatch, action: str, given: bytes, checked: bool
) -> None:
    """A VM without such a request is left to the stock script, whatever the other host has."""
    compose(bare, "b", BY_SOCKET)
    assert act(bare, action, given, monkeypatch) == given
    assert bare.log == (["b: placement"] if checked and action == "migrate" else [])
    compose(bare, "b", ("0-3",), "0-3")
    if checked:
        with pytest.raises(VicinalError, match="and this host has no 4-7: choose"):
            act(bare, action, given, monkeypatch)
    else:
        assert act(bare, action, given, monkeypatch) == given
    assert bare.a.vm.runs
    for host in (bare.a, bare.b):
        assert host.records.lacking() == []


@pytest.mark.parametrize("action", ["migrate", "restore"])
def test_it_is_told_where_its_processors_are_far_from_its_memory(
    bare: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: str,
) -> None:
    compose(bare, "b", IN_TURN)
    assert act(bare, action, data(ASKED), monkeypatch) == data(ASKED)
    assert "are not on the NUMA node of the VM's memory" in capsys.readouterr().err


def test_one_that_asked_only_after_it_was_deployed_is_not_checked(
    bare: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.a.fake.run(NAME, f"<domain type='kvm'><name>{NAME}</name><devices/></domain>")
    compose(bare, "b", ("0-3",), "0-3")
    assert act(bare, "migrate", data(ASKED), monkeypatch) == data(ASKED)
    assert bare.log == []


def test_a_placement_is_read_without_libvirts_binding() -> None:
    """As in guests of the tests, which have no libvirt."""
    module = "vicinal.integrations.opennebula.held_resources"
    script = f"import sys; sys.modules['libvirt'] = None; from {module} import read_placement"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
