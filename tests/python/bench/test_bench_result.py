"""Reading the output of programs, deciding rows, and the schemas of results."""

import copy
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.bars import Group, load_groups, read_groups, select_groups
from vicinal.labs.bench.bench_report import bars_table, bench_table, states_table, summary
from vicinal.labs.bench.compare import LineTimes, Rounds, Sample, alternate, decide
from vicinal.labs.bench.jobs import Amount
from vicinal.labs.bench.metric import FACTS, Metric, Trial, read_trial
from vicinal.labs.bench.own_figures import measure_own
from vicinal.labs.bench.report import format_value
from vicinal.labs.bench.result import result_head, write_result
from vicinal.labs.bench.schema import load_schema, validate
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.programs import run_program
from vicinal.mpi.environment import Mpi

OUTPUT = """\
[node0] a warning of some MPI
{"program": "latency", "ranks": 2, "mpi": "Some MPI", "hosts": ["node0", "node1"]}
{"size": 8, "repetition": 0, "iterations": 10, "microseconds": 1.5}
{"size": 8, "repetition": 1, "iterations": 10, "microseconds": 9.5}
{"size": 8, "repetition": 2, "iterations": 10, "microseconds": 2.5}
"""


SIDES = {
    "mpich": {"mpi": "mpich", "path": "region"},
    "mpich-tcp": {"mpi": "mpich", "path": "network"},
    "mpich-own": {"mpi": "mpich", "path": "shared-memory"},
    "cache-line": {"limit": "cache-line"},
    "mpich-overhead": {
        "mpi": "mpich",
        "path": "shared-memory",
        "ranks": 1,
        "metric": "overhead",
    },
}


def group(*changes: dict[str, Any]) -> Group:
    """A group with one bar for each given change, or with one unchanged bar."""
    bar = {
        "name": "some-row",
        "issue": 2,
        "title": "a title",
        "metric": "latency",
        "size": 8,
        "ours": "mpich",
        "theirs": "mpich-tcp",
        "at_most": 0.5,
    }
    bars = [
        {name: value for name, value in (bar | change).items() if value is not None}
        for change in changes or ({},)
    ]
    values = {"sides": SIDES, "groups": [{"name": "some", "title": "Some", "bars": bars}]}
    validate(values, "bars")
    (made,) = read_groups(values)
    return made


def samples(
    *values: float, line: tuple[float, float] = (100, 100), metric: Metric = Metric.LATENCY
) -> list[Sample]:
    return [
        Sample({metric: Trial(["a", "b"], "Some MPI", {8: [value]})}, LineTimes(*line))
        for value in values
    ]


def decided(
    made: Group, sides: dict[str, list[Sample]], missing: dict[str, str] | None = None
) -> dict[str, Any]:
    return decide(made.bars[0], made, Rounds(samples=sides, missing=missing or {}))


def some_row(**changes: Any) -> dict[str, Any]:
    sides = {"mpich": samples(1, 2, 3), "mpich-tcp": samples(4, 5, 6)}
    return decided(group(changes), sides)


def bench_result(*rows: dict[str, Any]) -> dict[str, Any]:
    head = result_head([Mpi.MPICH], cpus=[0, 1], amount=Amount(3, 1, 0.1), limitations=[])
    groups = [{"name": "some", "title": "Some"}]
    return head | {"format": "vicinal-bench-2", "limits": [], "groups": groups, "rows": list(rows)}


def text_of(*tables: Any, width: int = 120) -> str:
    file = io.StringIO()
    for table in tables:
        Console(width=width, file=file).print(table)
    return file.getvalue()


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


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo one >&2; echo two >&2; exit 3", "it failed: two: mend it"),
        ("exit 3", "it failed: status 3: mend it"),
        ("exec sleep 60", "it is late: free the machine and try again"),
    ],
)
def test_a_program_that_fails_or_does_not_end_is_an_error(script: str, message: str) -> None:
    with pytest.raises(VicinalError) as raised:
        run_program(
            ["sh", "-c", script], 1.0, failed="it failed: {}", late="it is late", remedy="mend it"
        )
    assert str(raised.value) == message


def test_a_program_on_this_host_gets_its_variables() -> None:
    script = """echo '{"word": "'$WORD'"}'; echo another line"""
    records = run_program(
        ["sh", "-c", script], 60.0, failed="{}", late="", remedy="", variables={"WORD": "some"}
    )
    assert records == [{"word": "some"}]


def test_an_operation_is_read_by_its_name() -> None:
    text = "\n".join(
        [
            '{"program": "collectives", "ranks": 2, "mpi": "Some MPI", "hosts": ["a", "b"]}',
            '{"operation": "bcast", "size": 8, "repetition": 0, "microseconds": 1.5}',
            '{"operation": "alltoall", "size": 8, "repetition": 0, "microseconds": 2.5}',
        ]
    )
    assert read_trial(text, Metric.ALLTOALL, [8]).value(8) == 2.5
    with pytest.raises(VicinalError, match="without all of its results"):
        read_trial(text, Metric.ALLREDUCE, [8])


def run_in_turn(fail: str = "") -> tuple[list[str], Rounds]:
    order = []
    lines = iter(range(100, 200))

    def run(name: str) -> dict[Metric, Trial]:
        order.append(name)
        if name == fail:
            raise VicinalError("it broke", "mend it")
        return {Metric.LATENCY: Trial([], "", {8: [float(len(order))]})}

    return order, alternate(["a", "b", "c"], 2, run, lambda: float(next(lines)))


def test_sides_run_in_turn_and_every_other_round_goes_backwards() -> None:
    order, rounds = run_in_turn()
    assert order == ["a", "b", "c", "c", "b", "a"]
    assert [s.trials[Metric.LATENCY].value(8) for s in rounds.samples["a"]] == [1, 6]
    # The line time after a trial is also the line time before the next trial.
    assert [sample.line for sample in rounds.samples["b"]] == [
        LineTimes(101, 102),
        LineTimes(105, 106),
    ]


def test_a_side_that_fails_is_left_out_and_the_others_go_on() -> None:
    order, rounds = run_in_turn(fail="b")
    assert order == ["a", "b", "c", "c", "a"]
    assert set(rounds.samples) == {"a", "c"}
    assert rounds.missing == {"b": "it broke"}
    assert rounds.failed == {"b"}


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
    made = group({"at_least": 2.0, "at_most": None})
    for ours, met in ((4, True), (3, False)):
        row = decided(made, {"mpich": samples(ours, ours), "mpich-tcp": samples(2, 2)})
        assert row["met"] is met


def test_a_row_whose_interval_crosses_the_bar_is_not_certain() -> None:
    row = decided(group(), {"mpich": samples(1, 4.0, 1), "mpich-tcp": samples(5, 5, 5)})
    assert row["met"] is True
    assert row["certain"] is False


def test_of_several_candidates_the_best_counts() -> None:
    sides = {
        "mpich": samples(3, 3, 3),
        "mpich-tcp": samples(9, 9, 9),
        "mpich-own": samples(5, 6, 7),
    }
    lower = decided(group({"theirs": {"best": ["mpich-tcp", "mpich-own"]}}), sides)
    assert lower["theirs"]["name"] == "mpich-own"
    assert lower["measured"]["value"] == pytest.approx(0.5)
    assert [side["name"] for side in lower["candidates"]] == ["mpich-tcp", "mpich-own"]
    rates = {
        name: samples(*(s.trials[Metric.LATENCY].value(8) for s in side), metric=Metric.BANDWIDTH)
        for name, side in sides.items()
    }
    change = {"theirs": {"best": ["mpich-tcp", "mpich-own"]}, "metric": "bandwidth"}
    assert decided(group(change), rates)["theirs"]["name"] == "mpich-tcp"


def test_a_candidate_that_is_missing_is_named() -> None:
    made = group({"theirs": {"best": ["mpich-tcp", "mpich-own"]}})
    sides = {"mpich": samples(1, 1), "mpich-tcp": samples(4, 4)}
    row = decided(made, sides, {"mpich-own": "it is not installed"})
    assert row["measured"]["value"] == 0.25
    assert row["notes"] == ["without MPICH, own shared memory: it is not installed"]


def test_sides_of_a_sum_are_added_up() -> None:
    made = group({"theirs": {"sum": ["cache-line", "mpich-overhead"]}, "at_most": 2})
    assert made.sizes("mpich-overhead") == {Metric.OVERHEAD: [8]}
    assert made.sizes("cache-line") == {Metric.LATENCY: [8]}
    sides = {
        "mpich": samples(6, 6, 6),
        "cache-line": samples(1, 1, 1),
        "mpich-overhead": samples(2, 3, 2, metric=Metric.OVERHEAD),
    }
    row = decided(made, sides)
    assert row["theirs"]["sum"] == ["cache-line", "mpich-overhead"]
    assert row["theirs"]["raw"] == [[3], [4], [3]]
    assert row["measured"]["value"] == 2
    validate(bench_result(row), "bench")
    # A sum is no limit if one of its parts is missing.
    del sides["mpich-overhead"]
    assert decided(made, sides, {"mpich-overhead": "gone"})["not_measured"] == "gone"


@pytest.mark.parametrize(
    ("change", "missing", "reason"),
    [
        ({"waits_for": "the moon"}, {}, "waits for the moon"),
        ({}, {"mpich": "it is not installed"}, "it is not installed"),
        ({}, {"mpich-tcp": "no network"}, "no network"),
    ],
)
def test_a_row_without_a_figure_says_why(
    change: dict[str, Any], missing: dict[str, str], reason: str
) -> None:
    sides = {name: samples(1) for name in ("mpich", "mpich-tcp") if name not in missing}
    row = decided(group(change), sides, missing)
    assert row["not_measured"] == reason
    assert row["met"] is None
    result = bench_result(row, some_row())
    validate(result, "bench")
    assert f"Not measured: {reason}: some-row" in list(summary(result))
    del row["not_measured"]
    with pytest.raises(jsonschema.ValidationError):
        validate(result, "bench")


@pytest.mark.parametrize("name", ["mpich", "mpich-tcp"])
def test_what_went_wrong_is_told_from_what_is_not_there(name: str) -> None:
    sides = {side: samples(1) for side in ("mpich", "mpich-tcp") if side != name}
    for failed in (True, False):
        rounds = Rounds(samples=sides, missing={name: "why"}, failed={name} if failed else set())
        made = group()
        assert decide(made.bars[0], made, rounds)["failed"] is failed


def test_a_candidate_that_went_wrong_is_told_too() -> None:
    """If a candidate is missing, the bar may be easier to reach."""
    made = group({"theirs": {"best": ["mpich-tcp", "cache-line"]}})
    sides = {"mpich": samples(1), "mpich-tcp": samples(2)}
    for failed in (set[str](), {"cache-line"}):
        rounds = Rounds(samples=sides, missing={"cache-line": "why"}, failed=failed)
        row = decide(made.bars[0], made, rounds)
        assert row["measured"]["value"] == 0.5
        assert row["notes"][-1].endswith(": why")
        assert row["failed"] is bool(failed)
        validate(bench_result(row), "bench")


def test_a_row_tells_the_ratio_of_each_placement_of_the_cpus() -> None:
    near, far = (60.0, 62.0), (140.0, 138.0)
    sides = {
        "mpich": samples(1, 1, 1, line=near) + samples(4, 4, 4, line=far) + samples(9, line=far),
        "mpich-tcp": samples(2, 2, 2, line=near)
        + samples(5, 5, 5, line=far)
        + samples(9, line=(60.0, 140.0)),
    }
    row = decided(group(), sides)
    placement = row["placement"]
    assert placement["changed"] == 1
    assert 62 < placement["boundary_ns"] < 138
    assert [(entry["state"], entry["ratio"]["value"]) for entry in placement["states"]] == [
        ("together", 0.5),
        ("apart", 0.8),
    ]
    assert placement["states"][1]["trials"] == {"mpich": 4, "mpich-tcp": 3}
    validate(bench_result(row), "bench")
    text = text_of(states_table([row, some_row()]))
    assert re.search(r"some-row +61 +0\.500 .* +3 +139 +0\.800 .* +3 +1\n", text)


def test_a_sum_has_a_ratio_in_each_placement_too() -> None:
    near, far = (60.0, 62.0), (140.0, 138.0)
    sides = {
        "mpich": samples(3, 3, 3, line=near) + samples(6, 6, 9, line=far),
        "mpich-tcp": samples(1, 1, 1, line=near) + samples(2, 2, 2, line=far),
        "cache-line": samples(1, 1, 1, line=near) + samples(1, 1, 1, line=far),
    }
    row = decided(group({"theirs": {"sum": ["mpich-tcp", "cache-line"]}}), sides)
    near_ratio, far_ratio = (entry["ratio"] for entry in row["placement"]["states"])
    assert (near_ratio["value"], near_ratio["low"], near_ratio["high"]) == (1.5, 1.5, 1.5)
    assert (far_ratio["value"], far_ratio["low"], far_ratio["high"]) == (2, 2, 3)
    validate(bench_result(row), "bench")


def test_without_a_change_of_placement_nothing_is_told_apart() -> None:
    assert some_row()["placement"]["states"] == []
    assert states_table([some_row()]) is None


class FakeStage:
    """Runs no job: in each job's region, the bytes in use depend on which ranks talk."""

    def run(self, scenario: Scenario, program: str, arguments: list[str], ranks: int) -> Any:
        assert (scenario.mpi, program) == (Mpi.MPICH, "pairs")
        used = {"none": 0, "neighbours": 10, "all": 40}[arguments[0]]
        return SimpleNamespace(
            region=SimpleNamespace(
                header=SimpleNamespace(first_bytes=4096, members=4),
                members=[SimpleNamespace(arena_used=used)] * ranks,
                connections=range(ranks),
            )
        )


@pytest.mark.parametrize(
    ("metric", "unit", "value", "theirs"),
    [("idle-endpoint", "bytes", 1024, None), ("ring-memory", "ratio", 0.25, 320)],
)
def test_memory_is_read_from_the_region_of_a_job(
    metric: str, unit: str, value: float, theirs: int | None
) -> None:
    made = group({"metric": metric, "size": None, "theirs": None, "at_most": 2000})
    stage: Any = FakeStage()
    row = measure_own(stage, made.bars[0], made)
    assert (row["unit"], row["measured"]["value"], row["met"]) == (unit, value, True)
    assert row["ours"]["scenario"]["mpi"] == "mpich"
    assert (row["theirs"]["median"]["value"] if row["theirs"] else None) == theirs
    validate(bench_result(row), "bench")


@pytest.mark.parametrize("name", ["bars", "bench", "common", "demo"])
def test_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(name))


@pytest.mark.parametrize(
    "damage",
    [
        lambda result: result.pop("versions"),
        lambda result: result["host"].pop("cpu"),
        lambda result: result.update(created="yesterday"),
        lambda result: result["rows"][0].pop("measured"),
        lambda result: result["rows"][0]["ours"].pop("median"),
        lambda result: result["rows"][0]["measured"].update(value=-1),
        lambda result: result["rows"][0].update(bar={}),
        lambda result: result["rows"][0].update(measured=None),
        lambda result: result["rows"][0]["placement"].pop("line_ns"),
        lambda result: result["rows"][0]["ours"].pop("scenario"),
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


def test_bars_have_names_of_their_own_and_each_side_knows_what_to_measure() -> None:
    groups = load_groups()
    names = [bar.name for made in groups for bar in made.bars]
    assert len(set(names)) == len(names)
    assert len({made.name for made in groups}) == len(groups)
    for made in groups:
        for bar in made.bars:
            assert bar.limit > 0
            for name in (bar.ours, *bar.theirs) if bar.theirs else ():
                metrics = made.sizes(name)
                assert len({FACTS[metric].program for metric in metrics}) == 1
                assert any(bar.size in sizes for sizes in metrics.values())


def test_a_bar_of_several_sizes_is_a_row_for_each() -> None:
    made = group({"name": "row", "size": None, "sizes": [8, 65536]})
    assert [(bar.name, bar.title) for bar in made.bars] == [
        ("row-8B", "8 B a title"),
        ("row-64K", "64 KiB a title"),
    ]


def names(groups: list[Group]) -> list[str]:
    return [bar.name for made in groups for bar in made.bars]


def test_rows_are_chosen_by_name_pattern_group_or_issue() -> None:
    groups = load_groups()
    assert names(select_groups(groups, "latency-mpich-8B")) == ["latency-mpich-8B"]
    assert len(names(select_groups(groups, "tcp-*"))) > 1
    assert len(names(select_groups(groups, "collectives"))) == 20
    assert select_groups(groups) == groups
    second = names(select_groups(groups, issue=2))
    assert second
    assert not set(second) & set(names(select_groups(groups, issue=3)))
    with pytest.raises(VicinalError, match="no row named nonsense"):
        select_groups(groups, "nonsense")
    with pytest.raises(VicinalError, match="no row of that issue"):
        select_groups(groups, issue=1000)


def test_a_chosen_row_keeps_only_the_sides_that_it_needs() -> None:
    made = group({"name": "one"}, {"name": "two", "theirs": "mpich-own"})
    assert set(made.only(made.bars[:1]).sides) == {"mpich", "mpich-tcp"}


def test_tables_show_every_row() -> None:
    groups = load_groups()
    text = text_of(bars_table(groups), width=160)
    assert all(name in text for name in names(groups))
    text = text_of(bench_table(bench_result(some_row(), some_row(name="other", at_most=0.1))))
    assert re.search(
        r"some-row +2\.00 +5\.00 +µs +0\.400 +0\.\d+–0\.\d+ +≤ 0\.5 +yes +100 +mpich-tcp", text
    )
    assert "≤ 0.1" in text


def test_the_longest_row_fits_into_the_table() -> None:
    longest = max(names(load_groups()), key=len)
    row = some_row(name=longest)
    row["theirs"]["name"] = max((n for g in load_groups() for n in g.sides), key=len)
    row["measured"] |= {"value": 0.0123, "low": 0.0123, "high": 0.0123}
    for line in text_of(bench_table(bench_result(row)), width=200).splitlines():
        assert len(line.rstrip()) <= 120
    assert longest in text_of(bench_table(bench_result(row)))


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
    assert show_exact_size(size) == text
