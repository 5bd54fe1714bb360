"""VMs that were moved to another host: what the hosts record, and what follows from it.

No VM is moved here: tests/guests/hosts/test_cluster_migration.py does that.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_file_support import host, read

from vicinal.base.codec import encode
from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster
from vicinal.cluster.hosts.host_part import Whole, host_part_of
from vicinal.cluster.hosts.moving import MoveStep, MoveSteps
from vicinal.cluster.hosts.record import (
    HostRecord,
    MoveRecord,
    all_moves,
    interrupted,
    moves,
    on_this_host,
    present_hosts,
)
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.plan.state import journal_of
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vms import VmResource, VmsResource

KEYS = {"user-key.pub": "u", "host-key.pub": "h"}
FILE = """name: lab
hosts: [{name: a, bridge: br0}, {name: b, bridge: br1, hypervisor: 'qemu:///system'}]
nodes: [{name: vm, backend: vm, count: 3}]
hypervisor: qemu:///session
"""
MOVE = MoveRecord("vm1", "a", "a", "b", "vicinal-0-lab-vm1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    # The bridges are on other hosts.
    monkeypatch.setattr("vicinal.cluster.nodes.vm.from_file.check_link", lambda *_, **__: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return read(tmp_path, FILE)


def desired(cluster: Cluster, name: str, moved: dict[str, str]) -> dict[str, Resource]:
    """The resources that a host should have after VMs were moved."""
    request = Whole(cluster, {"a": "10.0.0.1", "b": "10.0.0.2"}, KEYS, moved)
    host_part = host_part_of(json.loads(json.dumps(request.request(name, with_keys=False))))
    cpus, numa = host(1, 2, 1)
    return {each.key: each for each in desired_resources(host_part, cpus, numa)}


def settings(resource: Resource) -> dict[str, Any]:
    return dict(resource.settings)


def test_moves_are_remembered(tmp_path: Path, cluster: Cluster) -> None:
    journal = Journal(tmp_path / "journal")
    record = HostRecord("lab", "a", ("vm0", "vm1"), ("vm0", "vm1"), (), "", "qemu:///system")
    journal.write(record, Event.MADE)
    journal.write(MOVE, Event.BEGUN)
    entries = journal.entries()
    assert (interrupted(entries), moves(entries), all_moves(entries)) == ([MOVE], {}, [MOVE])
    assert present_hosts(cluster, entries) == {}
    journal.write(MOVE, Event.MADE)
    entries = journal.entries()
    assert (interrupted(entries), moves(entries)) == ([], {"vm1": MOVE})
    assert present_hosts(cluster, entries) == {"vm1": "b"}
    assert on_this_host(entries) == {}
    assert record.without("vm1").vms == ("vm0",)
    assert record.without("vm1").having("vm1") == record


def test_who_gives_a_vm_another_host_in_the_file_is_heard(tmp_path: Path, cluster: Cluster) -> None:
    journal = Journal(tmp_path / "journal")
    journal.write(MOVE, Event.MADE)
    changed = replace(cluster, nodes=tuple(replace(each, host="b") for each in cluster.nodes))
    assert present_hosts(changed, journal.entries()) == {}
    gone = replace(cluster, hosts=cluster.hosts[:1])
    assert present_hosts(gone, journal.entries()) == {}


def test_nothing_is_to_be_done_after_a_move(cluster: Cluster) -> None:
    """The desired resources after a move are what the move itself leaves on the hosts."""
    before = {name: desired(cluster, name, {}) for name in ("a", "b")}
    after = {name: desired(cluster, name, {"vm1": "b"}) for name in ("a", "b")}
    for name in ("a", "b"):
        for key in ("region/main", "keys/main", "vms/main"):
            assert settings(before[name][key]) == settings(after[name][key])
        assert "bridge/main" not in before[name]
    vm, common = before["a"]["vm/vm1"], before["b"]["vms/main"]
    assert isinstance(vm, VmResource)
    assert isinstance(common, VmsResource)
    moved = VmResource(common.at_this_host(vm.vm, "br1"))
    assert settings(moved) == settings(after["b"]["vm/vm1"])
    assert settings(before["a"]["vm/vm0"]) == settings(after["a"]["vm/vm0"])
    assert settings(before["b"]["vm/vm2"]) == settings(after["b"]["vm/vm2"])
    assert "vm/vm1" not in after["a"]
    assert after["a"]["guests/main"].needs == ("vm/vm0",)
    assert after["b"]["guests/main"].needs == ("vm/vm1", "vm/vm2")


def test_a_host_without_vms_keeps_what_they_need(cluster: Cluster) -> None:
    keys = list(desired(cluster, "b", {"vm2": "a"}))
    assert keys == ["region/main", "keys/main", "vms/main"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", bridge: br1", "", "yaml:2: a has a bridge .*, and b has none"),
        ("backend: vm", "backend: host", "yaml:2: bridge is set, and no node of a"),
        ("bridge: br0", "bridge: 'br 0'", "bridge cannot be"),
    ],
)
def test_bridges_that_cannot_be(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = FILE.replace(old, new)
    if "host" in new:
        text = text.replace(", count: 3", ", count: 2").replace("hypervisor: qemu:///session\n", "")
        text = text.replace(", hypervisor: 'qemu:///system'", "")
    with pytest.raises(VicinalError, match=said):
        read(tmp_path, text)


def test_who_has_something_that_does_not_move_is_told(cluster: Cluster) -> None:
    resource = desired(cluster, "a", {})["vm/vm1"]
    assert isinstance(resource, VmResource)
    for changes, said in (
        ({"bridge": None}, "by UDP wires, which do not move: name a bridge of each"),
        ({"bridge_is_ours": True}, "by UDP wires, which do not move"),
        ({"processors": (1,)}, "the placement pins it to processors"),
    ):
        changed: Any = changes
        journal = journal_of("lab.a")
        steps = MoveSteps("lab.a", "vm1")
        journal.write(VmResource(replace(resource.vm, **changed)), Event.MADE)
        with pytest.raises(VicinalError, match=said):
            steps.do(MoveStep.LEAVES, {})
        steps.close()
    steps = MoveSteps("lab.a", "vm1")
    with pytest.raises(VicinalError, match="it already has a virtual machine vm1"):
        steps.do(MoveStep.COMES, {"vm": encode(resource.vm), "bridge": "br1"})
    with pytest.raises(VicinalError, match="vm1 is not being moved"):
        steps.do(MoveStep.SEND_OUT, {"seconds": 1})
    steps.close()
    steps = MoveSteps("lab.c", "vm1")
    with pytest.raises(VicinalError, match="has no virtual machines of the cluster"):
        steps.do(MoveStep.COMES, {"vm": encode(resource.vm), "bridge": "br1"})
    assert steps.do(MoveStep.LOOK, {}) == {}
    assert steps.do(MoveStep.STAYS, {}) == {}
    steps.close()
