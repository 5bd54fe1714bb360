"""The bars: figures that a measurement must reach, as data in bars.json.

Each scenario has a name in the file. A group has the bars that the same runs decide. A bar compares
one scenario, ours, with another one, with the best of several, or with the sum of several. A bar
with several sizes makes a row for each size.
"""

import fnmatch
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.metric import Metric
from vicinal.labs.bench.schema import validate
from vicinal.labs.bench.sides import Side, read_side

IDLE_ENDPOINT = "idle-endpoint"
RING_MEMORY = "ring-memory"
PEER_MEMORY = "peer-memory"
EMPTY_POLL = "empty-poll"
IDLE_PEERS = "idle-peers"
ACROSS_NETWORK = "across-network"
CLUSTER_PLAN = "cluster-plan"
CLUSTER_UP = "cluster-up"
FIRST_MESSAGE = "first-message"
_OWN_UNITS = {
    IDLE_ENDPOINT: "bytes",
    PEER_MEMORY: "bytes",
    EMPTY_POLL: "ns",
    CLUSTER_PLAN: "s",
    CLUSTER_UP: "s",
    FIRST_MESSAGE: "s",
}
"""Units of metrics whose bar is not a ratio."""


class Against(StrEnum):
    """How the figures of the other sides are combined."""

    BEST = "best"
    SUM = "sum"


@dataclass(frozen=True)
class Bar:
    """A bar, and how it is measured."""

    name: str
    issue: int
    title: str
    metric: str
    """A Metric, or a kind of figure that only Vicinal has."""
    ours: str
    """The name of a scenario."""
    theirs: tuple[str, ...]
    """Names of scenarios and limits. Empty if only Vicinal has the figure."""
    against: Against
    size: int | None
    """Message size in bytes, if the bar has a metric."""
    at_most: float | None
    at_least: float | None
    source: str | None
    """The published figure that the bar comes from."""
    waits_for: str | None
    """The feature that Vicinal lacks so far and that the measurement needs."""
    note: str | None
    """What readers of its figure must know."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "list[Bar]":
        """Make the bars of one validated entry of bars.json."""
        theirs = values.get("theirs", [])
        against = Against.BEST
        if isinstance(theirs, str):
            theirs = [theirs]
        elif isinstance(theirs, dict):
            ((kind, theirs),) = theirs.items()
            against = Against(kind)
        bar = cls(
            name=values["name"],
            issue=values["issue"],
            title=values["title"],
            metric=values["metric"],
            ours=values["ours"],
            theirs=tuple(theirs),
            against=against,
            size=values.get("size"),
            at_most=values.get("at_most"),
            at_least=values.get("at_least"),
            source=values.get("source"),
            waits_for=values.get("waits_for"),
            note=values.get("note"),
        )
        return [bar.of_size(size) for size in values["sizes"]] if "sizes" in values else [bar]

    def of_size(self, size: int) -> "Bar":
        """The bar for one message size, with the size in its name and title."""
        shown = show_exact_size(size)
        return replace(
            self,
            name=f"{self.name}-{shown.replace(' ', '').replace('iB', '')}",
            title=f"{shown} {self.title}",
            size=size,
        )

    @property
    def unit(self) -> str:
        """The unit of the bar: ratio, bytes, ns or s."""
        return _OWN_UNITS.get(self.metric, "ratio")

    @property
    def limit(self) -> float:
        """The figure to reach. Raises ValueError if the bar has none."""
        limit = self.at_most if self.at_most is not None else self.at_least
        if limit is None:
            raise ValueError(f"{self.name} has no limit")
        return limit

    def met_by(self, value: float) -> bool:
        """Whether a measured value reaches the bar."""
        return value <= self.limit if self.at_most is not None else value >= self.limit


@dataclass(frozen=True)
class Group:
    """Bars that the same rounds of runs decide, and the sides of these runs by name."""

    name: str
    title: str
    bars: tuple[Bar, ...]
    sides: Mapping[str, Side]

    def sizes(self, name: str) -> dict[Metric, list[int]]:
        """The message sizes in bytes, by metric, that one start on a side measures."""
        side = self.sides[name]
        wanted: dict[Metric, set[int]] = {}
        for bar in self.bars:
            if bar.size is not None and name in (bar.ours, *bar.theirs):
                wanted.setdefault(side.metric or Metric(bar.metric), set()).add(bar.size)
        return {metric: sorted(sizes) for metric, sizes in wanted.items()}

    def only(self, bars: Iterable[Bar]) -> "Group":
        """The group with only some of its bars, and the sides that these need."""
        chosen = set(bars)
        kept = tuple(bar for bar in self.bars if bar in chosen)
        names = {name for bar in kept for name in (bar.ours, *bar.theirs)}
        sides = {name: side for name, side in self.sides.items() if name in names}
        return Group(self.name, self.title, kept, sides)


def load_groups() -> list[Group]:
    """All bars, in the order of bars.json."""
    values = json.loads((resources.files("vicinal.labs.bench") / "bars.json").read_text())
    validate(values, "bars")
    return read_groups(values)


def read_groups(values: Mapping[str, Any]) -> list[Group]:
    """The groups in the validated data of a file of bars."""
    known = {name: read_side(entry) for name, entry in values["sides"].items()}
    groups = []
    for entry in values["groups"]:
        bars = [bar for each in entry["bars"] for bar in Bar.from_dict(each)]
        names = dict.fromkeys(name for bar in bars for name in (bar.ours, *bar.theirs))
        sides = {name: known[name] for name in names}
        groups.append(Group(entry["name"], entry["title"], tuple(bars), sides))
    return groups


def select_groups(
    groups: Iterable[Group], pattern: str | None = None, issue: int | None = None
) -> list[Group]:
    """The groups with the selected bars. Without a pattern and an issue, all bars.

    `pattern` is the name of a bar or of a group, or a shell pattern for either. Raises VicinalError
    if no bar matches.
    """
    selected = []
    for group in groups:
        whole = pattern is None or fnmatch.fnmatch(group.name, pattern)
        bars = [
            bar
            for bar in group.bars
            if (whole or fnmatch.fnmatch(bar.name, pattern or ""))
            and (issue is None or bar.issue == issue)
        ]
        if bars:
            selected.append(group.only(bars))
    if not selected:
        wanted = "of that issue" if pattern is None else f"named {pattern}"
        raise VicinalError(f"there is no row {wanted}", "see `vicinal bench --list`")
    return selected
