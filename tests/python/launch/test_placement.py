"""Which ranks run on which node, and to which processors ranks are pinned."""

import os
from pathlib import Path

import pytest
from fake_host import FakeHost

from vicinal.base.errors import VicinalError
from vicinal.launch import cores
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


def test_without_a_node_it_is_said_so() -> None:
    with pytest.raises(
        VicinalError, match="there is no node to run ranks on: see `vicinal status`"
    ):
        place(2, [])


@pytest.mark.parametrize(
    ("threads", "allowed", "order"),
    [
        # Linux numbers second threads after all cores, or next to their first threads.
        (["0,2", "1,3", "0,2", "1,3"], {0, 1, 2, 3}, [0, 1, 2, 3]),
        (["0-1", "0-1", "2-3", "2-3"], {0, 1, 2, 3}, [0, 2, 1, 3]),
        # If a core's first thread is not allowed, its second thread counts as a whole core.
        (["0-1", "0-1", "2-3", "2-3"], {1, 2, 3}, [1, 2, 3]),
    ],
)
def test_whole_cores_are_used_before_their_second_threads(
    threads: list[str],
    allowed: set[int],
    order: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeHost(tmp_path)
    for cpu, same in enumerate(threads):
        fake.file(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", same)
    monkeypatch.setattr(cores, "Path", lambda path: tmp_path / path.lstrip("/"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    assert cores.usable_cpus() == order
