"""Reading what programs print, deciding rows, and the results' schemas."""

import copy
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from vicinal.bench.bars import Bar, Comparison, group_bars, load_bars, select_bars
from vicinal.bench.compare import alternate, decide
from vicinal.bench.jobs import Amount
from vicinal.bench.metric import Metric
from vicinal.bench.output import Trial, read_trial
from vicinal.bench.report import bars_table, bench_table, format_value
from vicinal.bench.result import result_head, write_result
from vicinal.bench.scenario import Scenario
from vicinal.bench.schema import load_schema, validate
from vicinal.bench.sizes import format_size, powers_of_two
from vicinal.errors import VicinalError
from vicinal.launch.environment import Mpi

OUTPUT = """\
[node0] a warning of some MPI
{"program": "latency", "ranks": 2, "mpi": "Some MPI", "hosts": ["node0", "node1"]}
{"size": 8, "repetition": 0, "iterations": 10, "microseconds": 1.5}
{"size": 8, "repetition": 1, "iterations": 10, "microseconds": 9.5}
{"size": 8, "repetition": 2, "iterations": 10, "microseconds": 2.5}
"""


def bar(**changes: Any) -> Bar:
    values = {
        "name": "some-row",
        "issue": 2,
        "title": "a title",
        "metric": "latency",
        "size": 8,
        "ours": {"mpi": "mpich", "path": "region"},
        "theirs": {"mpi": "mpich", "path": "network"},
        "at_most": 0.5,
    }
    return Bar.from_dict(values | changes)


def trials(*values: float) -> list[Trial]:
    return [Trial(["a", "b"], "Some MPI", {8: [value]}) for value in values]


def bench_result(row: dict[str, Any]) -> dict[str, Any]:
    head = result_head([Mpi.MPICH], cpus=[0, 1], amount=Amount(3, 1, 0.1), limitations=[])
    return head | {"format": "vicinal-bench-1", "limits": [], "rows": [row]}


def some_row(**changes: Any) -> dict[str, Any]:
    a_bar = bar(**changes)
    (comparison,) = group_bars([a_bar])
    return decide(a_bar, comparison, trials(1, 2, 3), trials(4, 5, 6))


def test_a_trial_is_the_median_of_its_repetitions() -> None:
    trial = read_trial(OUTPUT, Metric.LATENCY, [8])
    assert trial.repetitions == {8: [1.5, 9.5, 2.5]}
    assert trial.value(8) == 2.5
    assert trial.hosts == ["node0", "node1"]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [(OUTPUT, [8, 64]), ("", [8]), (OUTPUT.replace('"latency"', '"bandwidth"'), [8])],
)
def test_output_without_all_results_is_an_error(text: str, sizes: list[int]) -> None:
    with pytest.raises(VicinalError, match="without all of its results"):
        read_trial(text, Metric.LATENCY, sizes)


def test_a_broken_line_is_an_error() -> None:
    with pytest.raises(VicinalError, match="broken line"):
        read_trial(OUTPUT + '{"size": 8, ', Metric.LATENCY, [8])


def test_trials_alternate_and_every_other_pair_begins_with_the_other_side() -> None:
    (comparison,) = group_bars([bar()])
    order = []

    def run(scenario: Scenario) -> Trial:
        order.append(scenario.path.value)
        return trials(len(order))[0]

    ours, theirs = alternate(comparison, 3, run)
    assert order == ["region", "network", "network", "region", "region", "network"]
    assert [trial.value(8) for trial in ours] == [1, 4, 5]
    assert [trial.value(8) for trial in theirs] == [2, 3, 6]


def test_a_row_tells_ratio_bar_and_raw_values() -> None:
    row = some_row()
    assert row["measured"]["value"] == pytest.approx(0.4)
    assert row["met"] is True
    assert row["bar"] == {"at_most": 0.5}
    assert row["ours"]["raw"] == [[1], [2], [3]]
    assert row["theirs"]["median"]["value"] == 5
    validate(bench_result(row), "bench")


def test_a_bar_that_is_missed_is_called_missed() -> None:
    assert some_row(at_most=0.39)["met"] is False


def test_a_lower_bar_is_met_from_above() -> None:
    values = {"at_least": 2.0, "at_most": None}
    (comparison,) = group_bars([bar(**values)])
    assert decide(bar(**values), comparison, trials(4, 4), trials(2, 2))["met"] is True
    assert decide(bar(**values), comparison, trials(3, 3), trials(2, 2))["met"] is False


def test_a_row_whose_interval_crosses_the_bar_is_not_certain() -> None:
    (comparison,) = group_bars([bar()])
    row = decide(bar(), comparison, trials(1, 4.0, 1), trials(5, 5, 5))
    assert row["met"] is True
    assert row["certain"] is False


@pytest.mark.parametrize("name", ["bars", "bench", "common", "demo"])
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(name))


@pytest.mark.parametrize(
    "damage",
    [
        lambda result: result.pop("versions"),
        lambda result: result["machine"].pop("cpu"),
        lambda result: result.update(created="yesterday"),
        lambda result: result["rows"][0].pop("measured"),
        lambda result: result["rows"][0]["ours"].pop("median"),
        lambda result: result["rows"][0]["measured"].update(value=-1),
        lambda result: result["rows"][0].update(bar={}),
        lambda result: result.update(rows=[]),
    ],
)
def test_a_damaged_result_is_refused(damage: Any, tmp_path: Path) -> None:
    result = copy.deepcopy(bench_result(some_row()))
    damage(result)
    with pytest.raises(jsonschema.ValidationError):
        write_result(result, "bench", tmp_path / "result.json")
    assert not (tmp_path / "result.json").exists()


def test_a_result_is_written_as_it_is(tmp_path: Path) -> None:
    result = bench_result(some_row())
    write_result(result, "bench", tmp_path / "deep" / "result.json")
    assert json.loads((tmp_path / "deep" / "result.json").read_text()) == result


def test_bars_have_names_of_their_own_and_group_into_comparisons() -> None:
    bars = load_bars()
    assert len({bar.name for bar in bars}) == len(bars)
    groups = group_bars(bars)
    assert sum(len(group.bars) for group in groups) == sum(bar.theirs is not None for bar in bars)
    assert all(isinstance(group, Comparison) and group.sizes for group in groups)


def test_rows_are_chosen_by_name_or_pattern() -> None:
    bars = load_bars()
    assert [bar.name for bar in select_bars(bars, "latency-mpich-8B")] == ["latency-mpich-8B"]
    assert len(select_bars(bars, "tcp-*")) > 1
    assert select_bars(bars, None) == bars
    with pytest.raises(VicinalError, match="no row named nonsense"):
        select_bars(bars, "nonsense")


def test_tables_show_every_row() -> None:
    file = io.StringIO()
    console = Console(width=160, file=file)
    console.print(bars_table(load_bars()))
    console.print(bench_table([some_row(), some_row(at_most=0.1)]))
    text = file.getvalue()
    assert all(bar.name in text for bar in load_bars())
    assert re.search(r"some-row +2\.00 +5\.00 +µs +0\.400 +0\.250–0\.500 +≤ 0\.5 +yes", text)
    assert "≤ 0.1" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00619, "0.0062"),
        (0.2649, "0.265"),
        (14.32, "14.3"),
        (358.4, "358"),
        (12432.0, "12,400"),
    ],
)
def test_values_have_three_digits(value: float, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1, "1 B"), (1000, "1000 B"), (65536, "64 KiB"), (4 << 20, "4 MiB")],
)
def test_sizes_are_written_in_binary_units(size: int, text: str) -> None:
    assert format_size(size) == text


def test_powers_of_two_include_both_ends() -> None:
    assert powers_of_two(1, 8) == [1, 2, 4, 8]
    assert powers_of_two(4, 64, step=2) == [4, 16, 64]
