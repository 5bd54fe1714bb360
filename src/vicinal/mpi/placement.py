"""How many ranks of a job run on which node."""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.base.errors import VicinalError


@dataclass(frozen=True)
class Placement:
    """How many ranks run on one node; ranks are numbered node by node."""

    node: str
    ranks: int


def place(ranks: int, nodes: Sequence[str]) -> list[Placement]:
    """Spread ranks over nodes in blocks as even as can be; nodes without ranks are left out.

    Raises VicinalError where there is no node.
    """
    if not nodes:
        raise VicinalError(
            "there is no node to run ranks on", "see `vicinal status`, and make or start the nodes"
        )
    least, more = divmod(ranks, len(nodes))
    counts = [least + (number < more) for number in range(len(nodes))]
    return [Placement(node, count) for node, count in zip(nodes, counts, strict=True) if count]
