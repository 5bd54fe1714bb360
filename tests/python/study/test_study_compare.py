"""`vicinal study compare`: two results side by side."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from study_results import COSTS, HPL, NATIVE, REGION, SMALL, in_memory, write_result

from vicinal.base.errors import VicinalError
from vicinal.cli import run
from vicinal.labs.report.palette import BASE_LIGHT, LIGHT
from vicinal.labs.study.analysis.results import compare_results
from vicinal.labs.study.analysis.summary import Verdict
from vicinal.labs.study.file.model import Statistic

LATER = replace(SMALL, workloads=(replace(SMALL.workloads[0], sizes=(8, 64, 512)),))
COLORS = (BASE_LIGHT, LIGHT[0])
SLOWER = {**COSTS, REGION.name: 1.3}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A result, and a result of two days later with another kernel and a slower region."""
    folder = tmp_path_factory.mktemp("results")
    before, after = folder / "before", folder / "after"
    write_result(before, SMALL, 1)
    write_result(after, LATER, 2, costs=SLOWER)
    edit(
        after / "manifest.json",
        lambda values: values.update(
            created="2026-11-25T00:00:00+00:00",
            versions={**values["versions"], "kernel": "6.13.0"},
            host={**values["host"], "load": 7.0},
        ),
    )
    return before, after


@pytest.fixture
def pair(made: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies that a test may damage."""
    for folder in made:
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / "before", tmp_path / "after"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def compare(*arguments: str | Path) -> int:
    return run(["study", "compare", *map(str, arguments)])


def test_what_differs_comes_first_and_then_each_cell(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*made) == 0
    text = capsys.readouterr().out
    assert text.index("6.13.0") < text.index("1.18")
    assert "workload latency: sizes  8, 64   8, 64, 512" in text
    assert "7.0" not in text  # the momentary load
    assert text.count("worse") == 4
    assert text.count(" open") == 4
    assert "Only after: containers-region, latency, 512 B; native, latency, 512 B." in text


def test_figures_are_scipys(made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*made, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["what"] for each in found["differences"]] == [
        "versions.kernel",
        "workload latency: sizes",
    ]
    studies = [in_memory(SMALL, 1), in_memory(LATER, 2, costs=SLOWER)]
    medians = [
        [
            np.median(series.nanoseconds) / 2000
            for stored in result.trials
            if stored.trial.environment == REGION.name
            for series in result.series(stored)
            if series.size == 8
        ]
        for result in studies
    ]
    cell = next(
        each
        for each in found["cells"]
        if (each["environment"], each["size"], each["statistic"]) == (REGION.name, 8, "median")
    )
    assert cell["before"]["value"] == pytest.approx(np.median(medians[0]))
    assert cell["after"]["value"] == pytest.approx(np.median(medians[1]))
    expected = stats.mannwhitneyu(medians[1], medians[0], method="exact").pvalue
    assert cell["p_value"] == pytest.approx(expected)
    adjusted = sorted(each["p_value"] for each in found["cells"])
    assert cell["p_corrected"] == pytest.approx(len(adjusted) * adjusted[0])
    assert cell["ratio"]["low"] < 1.3 / 1.1 < cell["ratio"]["high"]


def test_a_table_for_other_programs(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*made, "--csv") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 8
    assert {row["verdict"] for row in rows} == {"open", "worse"}
    assert {row["unit"] for row in rows} == {"µs"}
    assert compare(*made, "--csv", "--json") == 2
    assert "choose one of --json and --csv" in capsys.readouterr().err


def test_plots_have_the_values_of_both(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "plots"
    assert compare(*made, "--csv", "--plots", folder) == 0
    captured = capsys.readouterr()
    assert len(list(csv.DictReader(captured.out.splitlines()))) == 8
    assert f"Written: 4 plots in {folder}" in captured.err
    name = "overlay-01-latency-containers-region-median"
    with Image.open(folder / f"{name}.png") as picture:
        assert picture.width > 600
    drawn = (folder / f"{name}.svg").read_text()
    for text in ("before, before", "after, after", REGION.title, "512 B"):
        assert text in drawn
    # Only the second result has 512 B: one more marker, and both ends of its interval.
    markers = [drawn.count(f'style="fill: {color}; stroke: {color}') for color in COLORS]
    assert markers[1] == markers[0] + 3


def test_plots_are_refused_before_anything_is_read(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert compare(*made, "--plots", tmp_path / "file") == 1
    captured = capsys.readouterr()
    assert "this user may not write to" in captured.err
    assert "name another directory with --plots" in captured.err
    assert captured.out == ""


def test_a_result_beside_itself_differs_in_nothing(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(made[0], made[0]) == 0
    text = capsys.readouterr().out
    assert "Machine, versions and study were the same." in text
    assert "worse" not in text
    assert "better" not in text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: edit(folder / "manifest.json", lambda values: values.update(schema=9)),
            "was written by a newer Vicinal (schema 9",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text("{"),
            "manifest.json is damaged",
        ),
        (
            lambda folder: (folder / "manifest.json").unlink(),
            "manifest.json cannot be read",
        ),
        (
            lambda folder: edit(
                folder / "manifest.json", lambda values: values["study"].pop("design")
            ),
            "design",
        ),
        (
            lambda folder: shutil.rmtree(folder / "trials"),
            "have no environment, workload and size in common",
        ),
    ],
    ids=["newer", "damaged", "missing", "no study", "no trials"],
)
def test_what_is_no_whole_result_is_refused(
    pair: tuple[Path, Path],
    damage: Callable[[Path], object],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(pair[1])
    assert compare(*pair) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_damaged_trials_are_said_and_the_others_compared(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (pair[1] / "trials/000001.json").write_text("{")
    (pair[1] / "samples/000002.parquet").write_bytes(b"")
    (pair[1] / "samples/000003.parquet").unlink()
    assert compare(*pair) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "000001.json is damaged" in text
    assert "000002.parquet is damaged: its checksum does not match" in text
    assert "000003.parquet cannot be read" in text
    assert "worse" in text


def test_results_without_a_cell_in_common_are_refused(tmp_path: Path) -> None:
    other = write_result(tmp_path / "hpl", replace(SMALL, workloads=(HPL,)), 3)
    first = in_memory(SMALL)
    with pytest.raises(VicinalError, match="have no environment, workload and size in common"):
        compare_results(first, other)


def test_too_few_trials_are_said() -> None:
    few = replace(SMALL, design=replace(SMALL.design, trials=3))
    found = compare_results(in_memory(few, 1), in_memory(few, 2, costs=SLOWER))
    assert {each.verdict for each in found.cells} == {Verdict.TOO_FEW}
    assert found.warnings == (
        "8 of 8 comparisons have too few trials for any claim at 0.05 after correction for all of "
        "them",
    )


def test_what_became_better_and_what_stayed() -> None:
    study = replace(
        SMALL,
        workloads=(replace(SMALL.workloads[0], sizes=(8,), statistics=(Statistic.MEDIAN,)),),
        design=replace(SMALL.design, trials=20, margin=0.05),
    )
    found = compare_results(
        in_memory(study, 1), in_memory(study, 2, costs={NATIVE.name: 1.0, REGION.name: 0.8})
    )
    verdicts = {each.environment: each for each in found.cells}
    assert verdicts[NATIVE.name].verdict in (Verdict.EQUIVALENT, Verdict.OPEN)
    assert verdicts[REGION.name].verdict is Verdict.BETTER
    assert verdicts[REGION.name].gain == pytest.approx(1 - 0.8 / 1.1, abs=0.05)
