"""Results as JSON files, with all raw values and their provenance."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vicinal.labs.bench.jobs import Amount
from vicinal.labs.bench.metric import UNITS, Metric, Trial
from vicinal.labs.bench.schema import validate
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.provenance import describe_origin
from vicinal.labs.statistics.few_trials import median_of_few
from vicinal.mpi.environment import Mpi


def result_head(
    mpis: Sequence[Mpi],
    *,
    cpus: Sequence[int],
    amount: Amount,
    limitations: Sequence[str],
    realtime: bool = False,
) -> dict[str, Any]:
    """The head of every result. Call it when measuring begins."""
    return {
        **describe_origin(mpis),
        "units": UNITS,
        "conditions": {
            "cpus": list(cpus),
            **asdict(amount),
            "limitations": list(limitations),
            "realtime": realtime,
        },
    }


def series_of(
    scenario: Scenario, metric: Metric, trials: Sequence[Trial], sizes: Sequence[int]
) -> dict[str, Any]:
    """The medians of one run by message size, with their raw values."""
    return {
        "metric": metric.value,
        "scenario": scenario.to_dict(),
        "library": trials[0].mpi,
        "hosts": trials[0].hosts,
        "points": [
            {
                "size": size,
                "median": median_of_few([trial.value(size) for trial in trials]).to_dict(),
                "raw": [trial.repetitions[size] for trial in trials],
            }
            for size in sizes
        ],
    }


def write_result(result: dict[str, Any], schema: str, path: Path) -> None:
    """Check a result against its schema, and write it. Missing directories are created."""
    validate(result, schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
