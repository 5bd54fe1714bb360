"""Which NUMA nodes memory comes from, as the kernel reports it."""

from collections.abc import Callable

import pytest

from vicinal.host.memory_policy import memory_from

Policy = Callable[[], tuple[int, int]]


def test_memory_comes_from_a_node_until_the_end(memory_policy: Policy) -> None:
    assert memory_policy() == (0, 0)
    with memory_from((0,)) as trouble:
        assert trouble == ""
        assert memory_policy() == (1, 1)  # MPOL_PREFERRED, of node 0
    assert memory_policy() == (0, 0)


def test_of_several_the_kernel_takes_those_that_there_are(memory_policy: Policy) -> None:
    with memory_from((0, 1)) as trouble:
        assert trouble == ""
        assert memory_policy()[0] == 3  # MPOL_INTERLEAVE
        assert memory_policy()[1] & 1
    assert memory_policy() == (0, 0)


@pytest.mark.parametrize("nodes", [(), (1023,), (5000,), (-1,)])
def test_what_cannot_be_changes_nothing(memory_policy: Policy, nodes: tuple[int, ...]) -> None:
    with memory_from(nodes) as trouble:
        assert bool(trouble) == bool(nodes)
        assert memory_policy() == (0, 0)
