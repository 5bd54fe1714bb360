"""What endpoints and connections cost in the region, read from the region itself."""

from typing import Any

from vicinal.labs.bench.bars import IDLE_ENDPOINT, Bar, Group
from vicinal.labs.bench.compare import make_row
from vicinal.labs.bench.jobs import Stage
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.ratio import ratio_estimate
from vicinal.region import RegionState

RANKS = 8
"""Of the jobs that show how ring memory grows; enough that pairs outnumber neighbours."""


def measure_memory(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """The row for a bar on memory. It counts bytes, which do not vary: one trial is enough."""
    scenario = group.sides[bar.ours]
    assert isinstance(scenario, Scenario), "memory is that of a job"
    measure = _idle_endpoint if bar.metric == IDLE_ENDPOINT else _rings
    return measure(stage, bar, scenario) | {"group": group.name}


def _region(stage: Stage, scenario: Scenario, talking: str, ranks: int) -> RegionState:
    region = stage.run(scenario, "pairs", [talking], ranks).region
    assert region is not None, "jobs on the path region have one"
    return region


def _idle_endpoint(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The whole region shared out over its slots, headers and tables included.

    A member's section is set aside when it joins, used or not, so this is what an endpoint
    takes which never sends anything.
    """
    header = _region(stage, scenario, "none", 2).header
    cost = median_estimate([header.region_bytes / header.members])
    side = _side(bar.ours, scenario, header.region_bytes / header.members, "B")
    side["detail"] = {"region_bytes": header.region_bytes, "members": header.members}
    return make_row(bar, cost, unit="bytes", trials=1, ours=side, theirs=None)


def _rings(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """Arena in use where only neighbours talk, against where every pair does."""
    sides = []
    for talking in ("neighbours", "all"):
        region = _region(stage, scenario, talking, RANKS)
        used = sum(member.arena_used for member in region.members)
        side = _side(bar.ours, scenario, used, "B")
        side["detail"] = {
            "talking": talking,
            "ranks": RANKS,
            "connections": len(region.connections),
            "pairs": RANKS * (RANKS - 1),
        }
        sides.append(side)
    neighbours, everybody = sides
    ratio = ratio_estimate([neighbours["median"]["value"]], [everybody["median"]["value"]])
    return make_row(bar, ratio, unit="ratio", trials=1, ours=neighbours, theirs=everybody)


def _side(name: str, scenario: Scenario, value: float, unit: str) -> dict[str, Any]:
    return {
        "name": name,
        "scenario": scenario.to_dict(),
        "unit": unit,
        "median": median_estimate([value]).to_dict(),
        "raw": [[value]],
    }
