"""The bars: what a measurement must reach, as data in bars.json.

A scenario has a name there. Bars that are decided by the same runs stand in one group. A bar
compares one scenario, ours, with another one, with the best of several, or with the sum of
several; a bar with several sizes is one row for each.
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
BESIDE_NETWORK = "beside-network"
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
"""Of metrics whose bar is no ratio."""


class Against(StrEnum):
    """How the other sides of a bar make one figure."""

    BEST = "best"
    SUM = "sum"


@dataclass(frozen=True)
class Bar:
    """One bar and what it is measured by."""

    name: str
    issue: int
    title: str
    metric: str
    """A Metric, or one of the kinds of figures that are ours alone."""
    ours: str
    """The name of a scenario."""
    theirs: tuple[str, ...]
    """Names of scenarios and limits; none where the bar is a figure of ours alone."""
    against: Against
    size: int | None
    """Message size in bytes, for a metric."""
    at_most: float | None
    at_least: float | None
    source: str | None
    """The published figure that the bar comes from."""
    waits_for: str | None
    """What Vicinal lacks so far, without which it cannot be measured."""
    note: str | None
    """What a reader of its figure has to know."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "list[Bar]":
        """Make the bars of one entry of bars.json, which has been validated."""
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
        """The same bar for one message size, which its name and title say."""
        shown = show_exact_size(size)
        return replace(
            self,
            name=f"{self.name}-{shown.replace(' ', '').replace('iB', '')}",
            title=f"{shown} {self.title}",
            size=size,
        )

    @property
    def unit(self) -> str:
        """What the bar is given in: ratio, bytes, ns or s."""
        return _OWN_UNITS.get(self.metric, "ratio")

    @property
    def limit(self) -> float:
        """The figure to reach."""
        limit = self.at_most if self.at_most is not None else self.at_least
        if limit is None:
            raise ValueError(f"{self.name} has no limit")
        return limit

    def met_by(self, value: float) -> bool:
        """Whether a measured value reaches the bar."""
        return value <= self.limit if self.at_most is not None else value >= self.limit


@dataclass(frozen=True)
class Group:
    """Bars that the same rounds of runs decide, and the sides of those runs by name."""

    name: str
    title: str
    bars: tuple[Bar, ...]
    sides: Mapping[str, Side]

    def sizes(self, name: str) -> dict[Metric, list[int]]:
        """What one start on a side has to measure: message sizes, bytes, for each metric."""
        side = self.sides[name]
        wanted: dict[Metric, set[int]] = {}
        for bar in self.bars:
            if bar.size is not None and name in (bar.ours, *bar.theirs):
                wanted.setdefault(side.metric or Metric(bar.metric), set()).add(bar.size)
        return {metric: sorted(sizes) for metric, sizes in wanted.items()}

    def only(self, bars: Iterable[Bar]) -> "Group":
        """The group with some of its bars alone, and the sides that they need."""
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
    """The groups in the data of a file of bars, which has been validated."""
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
    """The groups with the bars that are wanted; all without a pattern and an issue.

    `pattern` is the name of a bar or of a group, or a shell pattern for either.
    Raises VicinalError if there are none.
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
