"""What control groups are told of a node's limits. Directories stand in for control groups."""

from pathlib import Path

import pytest

from vicinal.cluster.nodes.container.cgroup import Group, create
from vicinal.cluster.nodes.container.spec import ContainerSpec

LIMIT = 64 << 20


def make(parent: Path, version: int) -> Path:
    """A node's group with its limits, in a directory with the files that the kernel would show."""
    (parent / "cgroup.subtree_control").write_text("")
    (parent / "cpuset.mems").write_text("0")
    spec = ContainerSpec("solar", "node0", cpus=(0,), memory=LIMIT)
    group = parent / "group"
    done, limitations = create(spec, [Group(str(group), ("cpuset", "memory"), version)])
    assert [each.path for each in done] == [str(group)]
    assert limitations == []
    return group


def test_what_is_above_the_limit_is_not_swapped_out(tmp_path: Path) -> None:
    group = make(tmp_path, 2)
    assert (group / "memory.max").read_text() == str(LIMIT)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (group / "cpuset.cpus").read_text() == "0"


def test_version_1_counts_memory_and_swap_together(tmp_path: Path) -> None:
    group = make(tmp_path, 1)
    assert (group / "memory.limit_in_bytes").read_text() == str(LIMIT)
    assert (group / "memory.memsw.limit_in_bytes").read_text() == str(LIMIT)
    assert (group / "cpuset.mems").read_text() == "0"


def test_a_limit_that_cannot_be_set_is_told(tmp_path: Path) -> None:
    spec = ContainerSpec("solar", "node0", memory=LIMIT)
    done, (said,) = create(spec, [Group(str(tmp_path / "none/group"), ("memory",), 1)])
    assert done == []
    assert "its memory is not limited (no such file or directory)" in said


@pytest.mark.parametrize("version", [1, 2])
def test_without_limits_nothing_is_made(tmp_path: Path, version: int) -> None:
    group = Group(str(tmp_path / "group"), (), version)
    assert create(ContainerSpec("solar", "node0"), [group]) == ([], [])
    assert not (tmp_path / "group").exists()
