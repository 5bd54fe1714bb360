"""Cluster files: what they mean, and the message for each mistake."""

from ipaddress import IPv4Interface
from pathlib import Path

import pytest
from cluster_file_support import host, read
from command_support import CHECKOUT

from vicinal.base.errors import VicinalError
from vicinal.base.faults import CollectedError
from vicinal.cluster.file.model import BackEnd, Mount, Policy
from vicinal.cluster.file.network import (
    BridgeNetwork,
    DeviceNetwork,
    Network,
    NoNetwork,
    TapNetwork,
    VfNetwork,
)
from vicinal.cluster.file.reading import load_schema, read_cluster
from vicinal.cluster.file.reading_region import check_members
from vicinal.cluster.nodes.placement import place_nodes

WHOLE = """\
name: solar
nodes:
  - name: node
    count: 3
    cpus: 2
    memory: 512M
    runtime: bubblewrap
    mounts: [., /data, "/home:/users:ro"]
  - name: big
    cpus: 4
placement:
  policy: core
  reserve: 1
region:
  members: 32
  section: 2M
  heap: 64M
"""


def test_all_that_a_file_can_say(tmp_path: Path) -> None:
    cluster = read(tmp_path, WHOLE)
    assert cluster.name == "solar"
    assert [node.name for node in cluster.nodes] == ["node0", "node1", "node2", "big"]
    assert [node.cpus for node in cluster.nodes] == [2, 2, 2, 4]
    assert cluster.nodes[0].memory_bytes == 512 << 20
    assert cluster.nodes[0].runtime == "bubblewrap"
    assert cluster.nodes[0].mounts == (
        Mount(str(tmp_path), str(tmp_path), read_only=False),
        Mount("/data", "/data", read_only=False),
        Mount("/home", "/users", read_only=True),
    )
    assert cluster.nodes[3].mounts == ()
    assert cluster.nodes[3].memory_bytes is None
    assert cluster.nodes[3].runtime is None
    assert (cluster.placement.policy, cluster.placement.reserve) == (Policy.CORE, 1)
    region = cluster.region
    assert region is not None
    assert (region.members, region.section_bytes, region.heap_bytes) == (32, 2 << 20, 64 << 20)


def test_what_a_file_need_not_say(tmp_path: Path) -> None:
    cluster = read(tmp_path, "name: a\nnodes: [{name: n}]\n")
    assert [node.name for node in cluster.nodes] == ["n"]
    assert cluster.placement.policy is Policy.NONE
    assert cluster.region is not None
    assert read(tmp_path, "name: a\nnodes: [{name: n}]\nregion: none\n").region is None
    own = read(tmp_path, "name: a\nnodes: [{name: n, backend: host}]\n")
    assert own.of(BackEnd.HOST) == own.nodes


def test_networks_of_several_nodes(tmp_path: Path) -> None:
    vf = "{card: eth1, mac: '52:54:00:00:00:ff', vlan: 7, spoof_check: false}"
    text = f"count: 2, network: {{vf: {vf}, address: 10.1.0.1/24}}"
    nodes = read(tmp_path, f"name: a\nnodes: [{{name: n, {text}}}]\n").nodes
    networks = [node.network for node in nodes if isinstance(node.network, VfNetwork)]
    settings = [network.settings for network in networks]
    assert [each.mac for each in settings] == ["52:54:00:00:00:ff", "52:54:00:00:01:00"]
    assert [str(network.address) for network in networks] == ["10.1.0.1/24", "10.1.0.2/24"]
    assert (settings[1].vlan, settings[1].spoof_check, settings[1].trust) == (7, False, None)
    devices = "network: {device: ['0000:03:00.0', '0000:03:00.1']}"
    nodes = read(tmp_path, f"name: a\nnodes: [{{name: n, count: 2, {devices}}}]\n").nodes
    assert [node.network for node in nodes] == [
        DeviceNetwork(f"0000:03:00.{number}", None) for number in (0, 1)
    ]


def test_bridges_taps_and_nothing(tmp_path: Path) -> None:
    def networks(nodes: str) -> list[Network | None]:
        return [node.network for node in read(tmp_path, f"name: a\nnodes: [{nodes}]\n").nodes]

    bridge = "bridge: br0, mac: '52:54:00:00:00:0f', address: 10.1.0.9/24"
    assert networks(f"{{name: n, count: 2, network: {{{bridge}}}}}") == [
        BridgeNetwork("br0", "52:54:00:00:00:0f", IPv4Interface("10.1.0.9/24")),
        BridgeNetwork("br0", "52:54:00:00:00:10", IPv4Interface("10.1.0.10/24")),
    ]
    assert networks("{name: n, backend: vm, count: 2, network: {tap: [t0, t1]}}") == [
        TapNetwork("t0", None, None),
        TapNetwork("t1", None, None),
    ]
    assert networks("{name: n, count: 2, network: none}") == [NoNetwork(), NoNetwork()]


TAP = "network: {tap: t0}"


def test_hosts_have_devices_and_taps_of_the_same_name(tmp_path: Path) -> None:
    """Devices and taps of one host serve one node each. Two hosts may have the same names."""
    for network in ("{tap: [t0, t0]}", "{device: ['0000:03:00.0', '0000:03:00.0']}"):
        nodes = f"nodes: [{{name: n, backend: vm, count: 2, network: {network}}}]"
        cluster = read(tmp_path, f"name: a\nhosts: [{{name: x}}, {{name: y}}]\n{nodes}\n")
        assert [node.host for node in cluster.nodes] == ["x", "y"]
        with pytest.raises(VicinalError, match="n0 and n1 would both have the"):
            read(tmp_path, f"name: a\nhosts: [{{name: x}}]\n{nodes}\n")


VF = "network: {vf: {card: eth1, mac: '52:54:00:00:00:01'}}"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("{name: n, backend: host, count: 2}", "the host node n0 is this host itself"),
        ("{name: n, backend: host}, {name: m}", "is this host itself, and cannot be beside m"),
        ("{name: n, backend: host, memory: 1G}", "and memory is only for container or vm"),
        (f"{{name: n, backend: host, {VF}}}", "a host node has its host's network"),
        ("{name: n, backend: host, network: none}", "yaml:2: nodes[0].network is for containers"),
        (f"{{name: n, {VF}}}, {{name: m, {VF}}}", "n and m would both have the hard"),
        ("{name: n, network: {}}", "yaml:2: nodes[0].network names no kind of network: name one"),
        ("{name: n, network: {bridge: a, device: '0000:03:00.0'}}", "names device and bridge: nam"),
        ("{name: n, network: some}", "yaml:2: nodes[0].network cannot be"),
        ("{name: n, network: {bridge: 'a/b'}}", "nodes[0].network.bridge cannot be"),
        ("{name: n, network: {bridge: a-name-of-16-let}}", "at most 15 characters"),
        ("{name: n, network: {tap: t0}}", "network.tap is only for virtual machines, and the n"),
        (
            "{name: n, backend: vm, count: 2, network: {tap: t0}}",
            "has 1 names, and the group has 2",
        ),
        (
            f"{{name: n, backend: vm, {TAP}}}, {{name: m, backend: vm, {TAP}}}",
            "n and m would both have the tap t0",
        ),
        (
            "{name: n, network: {bridge: b, mac: '01:2'}}",
            "yaml:2: nodes[0].network.mac: 01:2 is no",
        ),
        (
            "{name: n, network: {vf: {card: e}, mac: '52:54:00:00:00:01'}}",
            "network.mac is only for a bridge or a tap: remove it, or set it under vf",
        ),
        (
            "{name: n, network: {bridge: b, address: 10.1.0.1}}",
            "write an address such as 10.1.0.1/24",
        ),
        (
            "{name: n, backend: vm, network: {device: '0000:03:00.0', address: 10.1.0.1/24}}",
            "their guests set up the device themselves",
        ),
        ("{name: n, network: {vf: {}}}", "nodes[0].network.vf has no card: add it"),
        ("{name: n, network: {vf: {card: e, mtu: 9}}}", "unknown key mtu in nodes[0].netw"),
        ("{name: n, network: {vf: {card: e, mac: '01:2'}}}", "01:2 is no hardware address"),
        ("{name: n, network: {vf: {card: e, guid: '0x0'}}}", "0x0 is no GUID"),
        ("{name: n, network: {vf: {card: e, pkey: 0x8000}}}", "vf.pkey cannot be"),
        (
            "{name: n, count: 2, network: {device: '0000:03:00.0'}}",
            "yaml:2: nodes[0].network.device has 1 names, and",
        ),
        ("{name: n, network: {device: eth1}}", "nodes[0].network.device cannot be"),
        (
            "{name: n, count: 3, network: {vf: {card: e}, address: 10.1.0.1/30}}",
            "10.1.0.3 cannot be a node's address in 10.1.0.0/30",
        ),
        (
            "{name: n, network: {vf: {card: e}, address: ten}}",
            "write an address such as 10.1.0.1/24",
        ),
    ],
)
def test_mistakes_in_networks(tmp_path: Path, nodes: str, said: str) -> None:
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, f"name: a\nnodes: [{nodes}]\n")
    assert said in str(caught.value)
    assert "cluster.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cpus: 2", "cpu: 2", "cluster.yaml:5: unknown key cpu in nodes[0]: did you mean cpus?"),
        ("runtime: bubblewrap", "runtime: lxc", 'yaml:7: nodes[0].runtime cannot be "lxc": choose'),
        (
            "count: 3",
            "count: 0",
            ":4: nodes[0].count cannot be 0: give a whole number from 1 to",
        ),
        ("count: 3", "count: many", "cluster.yaml:4: nodes[0].count cannot be"),
        ("name: solar\n", "", "the file has no name: add it"),
        ("name: solar", "name: Solar", "cluster.yaml:1: name cannot be"),
        ("name: big", "name: node1", "two nodes would have the name node1"),
        ("memory: 512M", "memory: 1 pound", "cluster.yaml:6: nodes[0].memory cannot be"),
        ("/data", "/data:data", "cluster.yaml:8: nodes[0].mounts[1] cannot be"),
        ("policy: core", "policy: kernel", 'placement.policy cannot be "kernel"'),
        (
            "policy: core",
            "policy: explicit",
            "the placement policy is explicit, and node0 has no pin",
        ),
        ("cpus: 4", 'pin: ["0"]', "big has a pin, and the placement policy is core"),
        ("cpus: 2", 'pin: ["0", "1"]', "nodes[0] has 3 nodes, and pin has 2 lists of processors"),
        ("count: 3", "count: 1024", "the cluster has 1025 nodes"),
        ("name: solar", "name: solar\nname: lunar", "cluster.yaml:2: found duplicate key"),
        ("  - name: node\n", "  - name: [\n", "correct the YAML there"),
        (WHOLE, "just words", "the file is not a cluster file"),
        (WHOLE, "", "which has keys and values: begin with one of examples/"),
        ("name: solar", "name: Solar", "lowercase letters, digits and hyphens, at most 24"),
        ('mounts: [., /data, "/home:/users:ro"]', "mounts: /data", '/data": write a list: [...]'),
        (
            "section: 2M",
            "section: 3",
            "cluster.yaml:14: a region cannot have sections of 3 bytes: 256K to 1G are possible: "
            "change region.section accordingly",
        ),
        ("heap: 64M", "heap: 3", "take whole pages, such as 4 KiB: change region.heap"),
        (
            "  heap: 64M",
            "  device: nvdimm",
            "cluster.yaml:17: region.device is set, and no node is a virtual machine",
        ),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert WHOLE.count(old) >= 1
    with pytest.raises(VicinalError) as caught:
        read(tmp_path, WHOLE.replace(old, new, 1))
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match="could not be read"):
        read_cluster(tmp_path / "none.yaml")


def test_the_examples_can_be_read() -> None:
    files = sorted((CHECKOUT / "examples").glob("*.yaml"))
    assert len(files) > 2
    assert [read_cluster(file).name for file in files] == [file.stem for file in files]


def test_the_schema_describes_every_key() -> None:
    schema = load_schema()
    for part in (schema, *schema["$defs"].values()):
        assert part.get("type") != "object" or part["additionalProperties"] is False
        for name, value in part.get("properties", {}).items():
            described = value if "description" in value else schema["$defs"][value["$ref"][8:]]
            assert described["description"], name


def placed(tmp_path: Path, nodes: str, placement: str, of: tuple[int, int, int]) -> list[list[int]]:
    cluster = read(
        tmp_path, f"name: a\nnodes: [{{name: n, {nodes}}}]\nplacement: {{{placement}}}\n"
    )
    return [list(each) for each in place_nodes(cluster, *host(*of)).values()]


def test_placements(tmp_path: Path) -> None:
    # Two sockets of four cores with two threads each: processors 0 to 7 are the first threads.
    of = (2, 4, 2)
    assert placed(tmp_path, "count: 2, cpus: 2", "policy: none", of) == [[], []]
    assert placed(tmp_path, "count: 2, cpus: 2", "policy: core", of) == [[0, 1], [2, 3]]
    assert placed(tmp_path, "count: 3, cpus: 2", "policy: core, reserve: 2", of) == [
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    assert placed(tmp_path, "count: 2, cpus: 4", "policy: socket", of) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert placed(tmp_path, "count: 2, cpus: 3", "policy: numa, reserve: 1", of) == [
        [1, 2, 3],
        [4, 5, 6],
    ]
    assert placed(tmp_path, 'count: 2, pin: ["0-1,8", "5"]', "policy: explicit", of) == [
        [0, 1, 8],
        [5],
    ]


@pytest.mark.parametrize(
    ("nodes", "placement", "said"),
    [
        ("count: 9", "policy: core", "need 9 cores, and this host has 8"),
        (
            "count: 8",
            "policy: core, reserve: 1",
            "this host has 8, of which 1 are left to the host",
        ),
        (
            "count: 3",
            "policy: socket",
            "each of the 3 nodes of a needs a socket, and this host has 2",
        ),
        ("count: 2, cpus: 5", "policy: socket", "n0 needs 5 cores of one socket, and there are 4"),
        ("count: 2, cpus: 4", "policy: numa, reserve: 1", "n0 needs 4 cores of one NUMA node"),
        ('pin: ["16"]', "policy: explicit", "processor 16: this host does not have it"),
        (
            'count: 2, pin: ["1", "0-1"]',
            "policy: explicit",
            "processor 1 is assigned to both n0 and n1",
        ),
    ],
)
def test_placements_that_cannot_be(tmp_path: Path, nodes: str, placement: str, said: str) -> None:
    with pytest.raises(VicinalError) as caught:
        placed(tmp_path, nodes, placement, (2, 4, 2))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "placement", "said"),
    [
        (
            'count: 3, pin: ["16-17", "0", "0"]',
            "policy: explicit",
            [
                "n0 cannot have processor 16",
                "n0 cannot have processor 17",
                "is assigned to both n1 and n2",
            ],
        ),
        (
            "count: 3, cpus: 5",
            "policy: socket",
            ["each of the 3 nodes of a needs a socket", "n0 needs 5 cores", "n1 needs 5 cores"],
        ),
    ],
    ids=["explicit", "socket"],
)
def test_all_that_cannot_be_placed_is_said(
    tmp_path: Path, nodes: str, placement: str, said: list[str]
) -> None:
    with pytest.raises(CollectedError) as caught:
        placed(tmp_path, nodes, placement, (2, 4, 2))
    errors = [str(each) for each in caught.value.each]
    assert len(errors) == len(said)
    assert all(part in error for part, error in zip(said, errors, strict=True))


FAR = """name: lab
hosts: [{name: a, address: 10.0.0.1}, {name: b, address: 10.0.0.2}]
nodes: [{name: vm, backend: vm, count: 12, memory: 64M}]
region: {members: %d}
"""


def test_each_host_has_a_region_of_its_own_nodes(tmp_path: Path) -> None:
    check_members(read(tmp_path, "name: lab\nnodes: [{name: n, count: 600}]\nregion: none\n"))
    check_members(read(tmp_path, FAR % 6))
    with pytest.raises(VicinalError, match="the region has 5 members, and the 6 nodes on a need"):
        check_members(read(tmp_path, FAR % 5))
