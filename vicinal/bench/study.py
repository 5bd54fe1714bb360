"""`vicinal bench`: measures what the bars ask for, and says which are met."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from vicinal.bench.bars import Bar, Comparison, group_bars
from vicinal.bench.compare import alternate, decide
from vicinal.bench.jobs import Amount, Stage
from vicinal.bench.limits import measure_limits
from vicinal.bench.memory import measure_memory
from vicinal.bench.output import Trial
from vicinal.bench.progress import Steps, show_steps
from vicinal.bench.result import result_head
from vicinal.bench.scenario import Scenario


def run_study(bars: Sequence[Bar], amount: Amount) -> dict[str, Any]:
    """Measure all that `bars` need and return the result, a row for each in their order."""
    comparisons = group_bars(bars)
    memory_bars = [bar for bar in bars if bar.theirs is None]
    rows: dict[str, dict[str, Any]] = {}
    with show_steps(1 + 2 * amount.trials * len(comparisons) + len(memory_bars)) as steps:
        steps.begin("the limits of this machine")
        with Stage() as stage:
            head = result_head(
                sorted({bar.ours.mpi for bar in bars}),
                cpus=stage.cpus,
                amount=amount,
                limitations=stage.limitations,
            )
            limits = measure_limits(stage.cpus)
            steps.finish()
            for bar in memory_bars:
                steps.begin(bar.title)
                rows[bar.name] = measure_memory(stage, bar)
                steps.finish()
            for comparison in comparisons:
                run = partial(_run_trial, stage, comparison, amount, steps)
                ours, theirs = alternate(comparison, amount.trials, run)
                for bar in comparison.bars:
                    rows[bar.name] = decide(bar, comparison, ours, theirs)
    return head | {
        "format": "vicinal-bench-1",
        "limits": limits,
        "rows": [rows[bar.name] for bar in bars],
    }


def _run_trial(
    stage: Stage, comparison: Comparison, amount: Amount, steps: Steps, scenario: Scenario
) -> Trial:
    steps.begin(f"{comparison.metric}: {scenario.title}")
    trial = stage.measure(scenario, comparison.metric, comparison.sizes, amount)
    steps.finish()
    return trial
