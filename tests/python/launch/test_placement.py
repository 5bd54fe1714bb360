"""Which ranks run on which node."""

import pytest

from vicinal.mpi.placement import Placement, place


@pytest.mark.parametrize(
    ("ranks", "nodes", "counts"),
    [
        (4, "ab", {"a": 2, "b": 2}),
        (5, "ab", {"a": 3, "b": 2}),
        (5, "abc", {"a": 2, "b": 2, "c": 1}),
        (6, "abc", {"a": 2, "b": 2, "c": 2}),
        (2, "abc", {"a": 1, "b": 1}),
        (1, "a", {"a": 1}),
    ],
)
def test_ranks_are_spread_in_even_blocks(ranks: int, nodes: str, counts: dict[str, int]) -> None:
    assert place(ranks, list(nodes)) == [Placement(*each) for each in counts.items()]
