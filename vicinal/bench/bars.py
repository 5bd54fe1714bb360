"""The bars: what a measurement must reach, as data in bars.json, one for each row."""

import fnmatch
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from vicinal.bench.metric import Metric
from vicinal.bench.scenario import Scenario
from vicinal.bench.schema import validate
from vicinal.errors import VicinalError

IDLE_ENDPOINT = "idle-endpoint"
RING_MEMORY = "ring-memory"


@dataclass(frozen=True)
class Bar:
    """One bar and what it is measured by."""

    name: str
    issue: int
    title: str
    metric: str
    """A Metric, or one of the kinds of memory."""
    ours: Scenario
    theirs: Scenario | None
    size: int | None
    """Message size in bytes, for a metric."""
    at_most: float | None
    at_least: float | None
    source: str | None
    """The published figure that the bar comes from."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Bar":
        """Make a bar of one entry of bars.json, which has been validated."""
        theirs = values.get("theirs")
        return cls(
            name=values["name"],
            issue=values["issue"],
            title=values["title"],
            metric=values["metric"],
            ours=Scenario.from_dict(values["ours"]),
            theirs=Scenario.from_dict(theirs) if theirs else None,
            size=values.get("size"),
            at_most=values.get("at_most"),
            at_least=values.get("at_least"),
            source=values.get("source"),
        )

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
class Comparison:
    """Bars that one pair of runs decides: the same two sides and the same program."""

    metric: Metric
    ours: Scenario
    theirs: Scenario
    bars: tuple[Bar, ...]

    @property
    def sizes(self) -> list[int]:
        """Message sizes that the bars need, in bytes."""
        return sorted({bar.size for bar in self.bars if bar.size is not None})


def load_bars() -> list[Bar]:
    """All bars, in the order of bars.json."""
    values = json.loads((resources.files("vicinal.bench") / "bars.json").read_text())
    validate(values, "bars")
    return [Bar.from_dict(entry) for entry in values["bars"]]


def select_bars(bars: Iterable[Bar], pattern: str | None) -> list[Bar]:
    """The bars whose name is `pattern` or matches it as a shell pattern; all without one.

    Raises VicinalError if there are none.
    """
    bars = list(bars)
    selected = [bar for bar in bars if pattern is None or fnmatch.fnmatch(bar.name, pattern)]
    if not selected:
        raise VicinalError(f"there is no row named {pattern}", "see `vicinal bench --list`")
    return selected


def group_bars(bars: Iterable[Bar]) -> list[Comparison]:
    """The comparisons that decide all bars which compare two sides."""
    groups: dict[tuple[str, Scenario, Scenario], list[Bar]] = {}
    for bar in bars:
        if bar.theirs is not None:
            groups.setdefault((bar.metric, bar.ours, bar.theirs), []).append(bar)
    return [
        Comparison(Metric(metric), ours, theirs, tuple(members))
        for (metric, ours, theirs), members in groups.items()
    ]
