"""The examples are the configurations of the published studies: the resources of each example."""

import os
from collections import Counter
from pathlib import Path

import pytest
from cluster_file_support import host
from command_support import CHECKOUT
from fake_cards import FakeHelper, FakeHost, igb

from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.nodes.placement import place_nodes
from vicinal.cluster.resources.desired import desired_resources
from vicinal.cluster.resources.vms import VmResource
from vicinal.host.vf.operations import Vfs

SOCKETS, CORES, THREADS = 2, 8, 2

VMS = {"vms": 1, "vm": 2, "guests": 1}
CONTAINERS = {"containers": 1, "node": 2}
REGION = {"region": 1}
# For each example: the number of resources to create, by kind.
CONSISTS_OF = {
    "host": {"host-node": 1, **REGION},
    "host-plain": {"host-node": 1},
    "containers": {"containers": 1, "node": 4, **REGION},
    "container-per-core": {**CONTAINERS, **REGION},
    "container-per-numa-node": {**CONTAINERS, **REGION},
    "container-pt": {**CONTAINERS, "interface": 2, **REGION},
    "container-pt-plain": {**CONTAINERS, "interface": 2},
    "container-sriov": {**CONTAINERS, "vfs": 1, "vf": 2, "interface": 2, **REGION},
    "container-sriov-plain": {**CONTAINERS, "vfs": 1, "vf": 2, "interface": 2},
    "bridge": {**CONTAINERS, "cable": 2, **REGION},
    "first-boot": {**CONTAINERS, "commands": 2, **REGION},
    "vms": {**VMS, **REGION},
    "vm-image": {**VMS, **REGION},
    "vm-per-core": {**VMS, **REGION},
    "vm-per-core-no-region": VMS,
    "vm-per-socket": {**VMS, **REGION},
    "vm-per-numa-node": {**VMS, **REGION},
    "vm-pt": {**VMS, **REGION},
    "vm-pt-plain": VMS,
    "vm-sriov": {**VMS, "vfs": 1, "vf": 2, **REGION},
    "vm-sriov-plain": {**VMS, "vfs": 1, "vf": 2},
}
# The processors of the two nodes, on two sockets of eight cores.
PLACED = {
    "per-core": [(1,), (2,)],
    "per-socket": [tuple(range(8)), tuple(range(8, 16))],
    "per-numa-node": [tuple(range(8)), tuple(range(8, 16))],
}


@pytest.mark.parametrize("name", CONSISTS_OF)
def test_what_it_consists_of_on_the_studies_kind_of_host(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card is a fake; the host's processors, bridge and libvirt are made up."""
    monkeypatch.setattr("vicinal.cluster.resources.interfaces.check_bridge", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # root can move interfaces into containers
    monkeypatch.setattr(os, "cpu_count", lambda: SOCKETS * CORES * THREADS)
    monkeypatch.setattr("vicinal.cluster.vm.libvirt.uri.system_answers", lambda _: True)
    fake = FakeHost(tmp_path, igb())
    cluster = read_cluster(CHECKOUT / f"examples/{name}.yaml")
    cpus, numa = host(SOCKETS, CORES, THREADS)
    resources = desired_resources(cluster, cpus, numa, Vfs(fake, FakeHelper(fake)))
    assert Counter(each.key.partition("/")[0] for each in resources) == CONSISTS_OF[name]
    placed = place_nodes(cluster, cpus, numa)
    for policy, processors in PLACED.items():
        if policy in name:
            assert [placed[node.name] for node in cluster.nodes] == processors
    for each in resources:
        if isinstance(each, VmResource):
            assert each.vm.processors == placed[each.vm.name]
            assert bool(each.vm.region) is (cluster.region is not None)
            assert bool(each.vm.device) is ("-pt" in name)
            assert bool(each.vm.vf) is ("-sriov" in name)
