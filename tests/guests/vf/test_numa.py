"""NUMA nodes with the real kernel, in a guest whose VM has three nodes (numa_inside.py)."""

from collections.abc import Iterator
from typing import Any

import pytest
from vf_guest import Work, run_inside

Steps = dict[str, dict[str, Any]]

NODES = ((448, "0-3"), (384, "4-7"), (48, ""))
"""Memory in MiB and processors of each node. The last has only memory, like a CXL module."""
PAGES = 4096
"""Pages of a region of 16 MiB."""
DISTANCES = ((0, 1, 21), (0, 2, 25), (1, 2, 25))


def _arguments() -> Iterator[str]:
    for number, (memory, cpus) in enumerate(NODES):
        yield from ("-object", f"memory-backend-ram,id=memory{number},size={memory}M")
        has = f",cpus={cpus}" if cpus else ""
        yield from ("-numa", f"node,nodeid={number},memdev=memory{number}{has}")
    for one, other, far in DISTANCES:
        yield from ("-numa", f"dist,src={one},dst={other},val={far}")


NUMA = Work(
    "numa",
    ("bridge", "veth"),
    ("numa_inside.py",),
    devices=tuple(_arguments()),
    processors="8,sockets=2,cores=2,threads=2",
    memory=sum(memory for memory, _ in NODES),
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    lines = run_inside(tmp_path_factory.mktemp("guest"), print, NUMA)
    assert lines[-1]["step"] == "end", lines[-1]
    return {line["step"]: line for line in lines}


def test_processors_and_nodes_are_those_of_the_vm(steps: Steps) -> None:
    cpus = steps["processors"]["found"]
    assert [(each["socket"], each["core"]) for each in cpus[::2]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert [each["siblings"] for each in cpus[::2]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    [[status, said, _]] = steps["numa"]["found"]
    assert status == "pass"
    assert said.startswith("2 sockets, 4 cores, 2 threads in each; node 0: CPUs 0-3, ")
    assert "; node 1: CPUs 4-7, " in said
    assert "; node 2: CPUs none, " in said
    assert said.endswith("distance 21 to 25 (10 is near)")


def test_huge_pages_of_one_node_alone_are_told(steps: Steps) -> None:
    [status, said, remedy] = steps["huge pages"]["found"][0]
    assert status == "warn"
    assert "node 0: 0 of 0, node 1: 4 of 4, node 2: 0 of 0: none on node 0, so guests" in said
    assert "/node0/hugepages/hugepages-2048kB/nr_hugepages" in remedy
    assert 'VICINAL_HUGE_PAGES_FREE="8"' in steps["probe"]["lines"]


@pytest.mark.parametrize(
    ("of", "where"),
    [
        ("no node, from node 0", {"0": PAGES}),
        ("no node, from node 1", {"1": PAGES}),
        ("node 0", {"0": PAGES}),  # created by a process on node 1, the next by one on node 0
        ("node 1", {"1": PAGES}),
        ("node 2", {"2": PAGES}),
        ("nodes 0 and 1", {"0": PAGES // 2, "1": PAGES // 2}),
        ("nodes 1 and 2", {"1": PAGES // 2, "2": PAGES // 2}),
        ("node 1, huge pages", {"1": PAGES}),
    ],
)
def test_a_region_is_on_the_nodes_of_its_vms(steps: Steps, of: str, where: dict[str, int]) -> None:
    step = steps[f"region of {of}"]
    assert (step["pages"], step["said"], step["policy"]) == (where, "", 0)
    assert step["huge_mebibytes"] == (16 if "huge" in of else 0)


def test_where_a_node_has_no_room_others_are_taken_and_it_is_said(steps: Steps) -> None:
    step = steps["region of node 2, too long"]
    assert sum(step["pages"].values()) == 4 * PAGES
    assert step["pages"]["2"] > 2 * PAGES
    assert len(step["pages"]) > 1
    assert (
        "the kernel chose the NUMA nodes of the region: NUMA node 2 had room for 4" in step["said"]
    )
    assert step["said"].endswith("MiB of its 64.0 MiB\n")


def test_a_node_that_is_not_there_is_said(steps: Steps) -> None:
    step = steps["region of node 3"]
    assert "memory cannot be placed on NUMA node 3: Invalid argument" in step["said"]
    assert sum(step["pages"].values()) == PAGES


def test_a_vm_is_kept_on_the_processors_of_its_memorys_node(steps: Steps) -> None:
    domain = steps["pinned to the node"]["domain"]
    assert domain.count('cpuset="4-7"') == 3
    beside = steps["emulator beside"]
    assert (beside["left"], '<emulatorpin cpuset="5,7" />' in beside["domain"]) == ("", True)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("a VM that is right here", ""),
        ("one whose processors are elsewhere", "4-7, which on this host are not on the NUMA node"),
        ("one of a processor too many", "on the processors 7-8, and this host has no 8: choose"),
        ("one of a node too many", "from the NUMA nodes 3, and this host has no 3: choose"),
    ],
)
def test_a_host_says_what_it_has_not_of_a_vm_s(steps: Steps, step: str, said: str) -> None:
    found = steps[step]["said"]
    assert said in found
    assert bool(said) == bool(found)


def test_a_vm_that_its_node_has_no_memory_for_is_refused(steps: Steps) -> None:
    """The host has the memory, but on another node."""
    assert steps["room"]["said"] == ""
    assert "of memory of NUMA node 1, and " in steps["no room"]["said"]


def test_placements_of_the_papers_are_on_the_nodes(steps: Steps) -> None:
    """Node 2 has no processors, so no VM is placed there."""
    assert steps["placement core"]["placed"] == {"node0": [2], "node1": [4]}
    assert steps["placement socket"]["placed"] == {"node0": [0, 2], "node1": [4, 6]}
    assert steps["placement numa"]["placed"] == {"node0": [2], "node1": [4]}
    assert steps["cluster"]["allowed"] == {"node0": ["2"], "node1": ["4"]}
