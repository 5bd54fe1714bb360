"""The number of ranks of a job on each node."""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.base.errors import VicinalError


@dataclass(frozen=True)
class Placement:
    """The number of ranks on one node; ranks are numbered node by node."""

    node: str
    ranks: int


def place(ranks: int, nodes: Sequence[str]) -> list[Placement]:
    """Spread ranks over nodes in blocks of nearly equal size; nodes without ranks are left out.

    Raises VicinalError if there is no node.
    """
    if not nodes:
        raise VicinalError(
            "there is no node to run ranks on",
            "see `vicinal status`, and create or start the nodes",
        )
    least, more = divmod(ranks, len(nodes))
    counts = [least + (number < more) for number in range(len(nodes))]
    return [Placement(node, count) for node, count in zip(nodes, counts, strict=True) if count]
