"""Folders of the tuner's searches on a simulated machine, for tests of their use.

    search_folders.py FOLDER

writes one there, and an example's report beside it, for people to look at.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from vicinal.labs.tune.search.blocks import Budget
from vicinal.labs.tune.search.finding import Plan, find
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Setting, Space
from vicinal.labs.tune.search.trial import Measured, write_line

KNOBS: dict[str, tuple[int | str, ...]] = {
    "eth1/rx-usecs": (0, 10, 40, 1000),
    "eth1/rx-frames": (1, 88),
}
PRESENT: dict[str, int | str] = {"eth1/rx-usecs": 40, "eth1/rx-frames": 88}
TITLES = {"small": "Small messages, with a name that is <b>long</b>", "bulk": "Bulk", "ep": "EP"}


def search_folder(
    folder: Path, *, counted: bool = True, emulated: bool = False, seed: int = 1
) -> Path:
    """A search of three workloads: one needs no moderation, one needs more, EP is indifferent.

    For the second workload the time changes, and the interrupts do not.
    """
    random = Random(seed)

    def measure(setting: Setting, phase: str) -> Measured:
        usecs, frames = int(setting["eth1/rx-usecs"]), int(setting["eth1/rx-frames"])
        time, rate = 20.0, 5_000.0
        if phase == "small":
            time += usecs / 8 + frames / 40
            rate = 1e6 / (20 + usecs)
        elif phase == "bulk":
            time = 50.0 - 4 * (usecs == 1000)
        noise = random.gauss(1, 0.01)
        evidence: dict[str, Any] = {"seconds": 1.0, "work": 1.0}
        if counted:
            evidence["interrupts"] = {"41 eth1-rx-0": round(rate * random.gauss(1, 0.02)), "LOC": 9}
        return Measured({"p50": time * noise, "p99": 2 * time * noise}, evidence)

    plan = Plan((Objective.P50, Objective.P99), Budget(trials=1200), tuple(TITLES), seed=seed)
    found = find(Space.of(KNOBS, present=PRESENT), plan, measure)
    folder.mkdir(parents=True, exist_ok=True)
    workloads = {name: {"name": name, "title": title} for name, title in TITLES.items()}
    result: Mapping[str, Any] = {
        "schema": 1,
        "name": "simulated",
        "title": "Moderation of a simulated card",
        "ended": "2026-11-23T11:58:28+00:00",
        "workloads": workloads,
        **found.to_dict(),
    }
    (folder / "result.json").write_text(json.dumps(result))
    manifest = {
        "schema": 1,
        "name": "simulated",
        "asked": {"spec": "simulated.yaml"},
        "host": {"cpu": "A simulated processor", "virtual": True},
        "environment": {"emulated": emulated},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "trials.jsonl").write_text("".join(map(write_line, found.trials)))
    return folder


if __name__ == "__main__":
    from report_summaries import source

    from vicinal.labs.report.making import write_report
    from vicinal.labs.tune.outputs.searched import read_searched

    target = Path(sys.argv[1])
    searches = [read_searched(search_folder(target / "search"))]
    write_report([source()], target / "report", searches)
