"""The report's section on tuning: searches of a simulated machine next to P3's figures."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from report_summaries import small_source
from search_folders import TITLES, search_folder
from study_results import EXAMPLE, write_result

from vicinal.base.errors import VicinalError
from vicinal.labs.report.making import write_report
from vicinal.labs.report.palette import PAPER
from vicinal.labs.report.tuned import STUDIES, Searched, published_of, tuning
from vicinal.labs.report.tuned_plot import gains_plot
from vicinal.labs.tune import report_command
from vicinal.labs.tune.outputs.searched import read_searched


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return search_folder(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def searched(folder: Path) -> Searched:
    return read_searched(folder)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, searched: Searched) -> Path:
    target = tmp_path_factory.mktemp("report")
    return write_report([small_source("monday", 1)], target, [searched])


def test_what_was_found_is_told(searched: Searched) -> None:
    small, bulk, ep = searched.phases
    assert small.changed == {"eth1/rx-usecs": (40, 0), "eth1/rx-frames": (88, 1)}
    p50, p99 = small.gains
    assert (p50.objective, p50.verdict, p99.verdict) == ("P50", "better", "better")
    assert p50.ratio.holds(20 / 27.2)
    assert small.mechanism is True
    assert small.interrupts_before is not None
    assert small.interrupts_after is not None
    assert small.interrupts_before.value == pytest.approx(1e6 / 60, rel=0.03)
    assert small.interrupts_after.value == pytest.approx(1e6 / 20, rel=0.03)
    assert bulk.changed["eth1/rx-usecs"] == (40, 1000)
    assert (bulk.mechanism, bulk.why) == (False, "the time changed, and the interrupts did not")
    assert (ep.outcome, ep.changed, ep.mechanism) == ("no better setting", {}, None)
    assert {gain.verdict for gain in ep.gains} == {"not shown to differ"}
    assert len(ep.gains) == 2


def test_interrupts_that_were_not_counted_are_not_zero(tmp_path: Path) -> None:
    small = read_searched(search_folder(tmp_path, counted=False)).phases[0]
    assert (small.interrupts_before, small.interrupts_after) == (None, None)
    assert (small.mechanism, small.why) == (False, "no interrupts were counted")
    section = tuning("any", [read_searched(tmp_path)], [None])
    assert section is not None
    assert section.searches[0].interrupts.rows[0][1:3] == ("not counted", "not counted")


def test_page_markdown_and_csv_have_it(report: Path) -> None:
    page = report.read_text()
    assert 'href="#tuning"' in page
    for text in ("Tuned, a second", "mechanism not established", "rx-usecs 40 → 1000"):
        assert text in page, text
    assert "<b>long" not in page  # a title is text, not markup
    text = report.with_name("report.md").read_text()
    assert "## Tuning" in text
    assert "41 eth1-rx-0" in text
    rows = list(csv.DictReader(report.with_name("tuned.csv").read_text().splitlines()))
    assert [row["phase"] for row in rows] == [name for name in TITLES for _ in range(2)]
    assert float(rows[0]["after"]) == pytest.approx(20, rel=0.02)
    assert float(rows[0]["interrupts_per_s_before"]) == pytest.approx(1e6 / 60, rel=0.03)


def test_a_plot_shows_how_much_better_each_figure_became(report: Path, searched: Searched) -> None:
    plot = gains_plot("gains", searched)
    assert plot is not None
    nbsp = "\N{NO-BREAK SPACE}"
    assert f"P50: 27.2 → 20.0{nbsp}µs (27{nbsp}% less), better" in plot.alternative
    assert plot.alternative.count("→") == sum(len(each.gains) for each in searched.phases)
    assert 'aria-label="Moderation of a simulated card: beside' in report.read_text()
    assert "plots/tuning-1-gains.png" in report.with_name("report.md").read_text()
    assert report.with_name("plots").joinpath("tuning-1-gains.png").stat().st_size > 1000
    containers = plot.figure.axes[0].containers
    markers = [bars.lines[0] for bars in containers if isinstance(bars, ErrorbarContainer)]
    positions = [float(np.asarray(marker.get_xdata())[0]) for marker in markers]
    # Less time is higher performance: to the right of 1.
    assert positions == pytest.approx([1.36, 1.36, 1.09, 1.09, 1.0, 1.0], abs=0.02)
    hollow = [marker.get_markerfacecolor() == PAPER.light for marker in markers]
    assert hollow == [False] * 4 + [True] * 2
    assert gains_plot("gains", replace(searched, phases=())) is None


def test_where_it_was_found_is_told(tmp_path: Path) -> None:
    section = tuning("any", [read_searched(search_folder(tmp_path, emulated=True))], [None])
    assert section is not None
    where, emulated = section.searches[0].sentences[:2]
    assert where.endswith("rx-frames, on A simulated processor, a virtual machine itself")
    assert "emulated" in emulated


def test_a_page_has_no_such_section_without_a_reason(example_report: Path) -> None:
    assert tuning("p2-fig4", [], []) is None
    assert 'id="tuning"' not in example_report.read_text()
    assert not example_report.with_name("tuned.csv").exists()


@pytest.mark.usefixtures("no_png")
def test_studies_of_interrupts_say_how_to_have_it(tmp_path: Path) -> None:
    source = small_source("monday", 1)
    study = replace(source.summary.study, name="p3-fig10")
    source = replace(source, summary=replace(source.summary, study=study))
    page = write_report([source], tmp_path).read_text()
    assert "No search for a better setting is shown here." in page
    assert "P3 Table III: Latency by interrupt moderation: hosts, rx-frames 88 → 1" in page
    assert {"p3-fig8", "p3-fig9", "p3-fig13", "p3-table3", "p3-table4", "p3-table5"} < STUDIES


def rows_of(knob: str, begins: str) -> list[tuple[str, ...]]:
    (table,) = (each for each in published_of([knob]) if each.name.startswith(begins))
    return list(table.rows)


def test_figures_are_as_they_were_published() -> None:
    native = rows_of("eth1/rx-frames", "P3 Table III: Latency by interrupt moderation: hosts")
    assert native[0][1:] == ("64\N{NO-BREAK SPACE}B", *micro("5.05", "3.77"), "0.747")
    assert native[-2][2:4] == micro("11.45", "9.98")
    guests = rows_of("eth1/rx-frames", "P3 Table III: Latency by interrupt moderation: virtual")
    assert len(native) == len(guests) == 9
    assert guests[0][2:] == (*micro("7.06", "5.4"), "0.765")
    gathered = rows_of("eth1/rx-frames", "P3 Table IV")
    assert gathered[2][2:] == (*micro("2.76", "2.97"), "1.08", "<\N{NO-BREAK SPACE}0.001")
    processes = rows_of("eth1/rx-frames", "P3 fig. 8, P3 Table V")
    assert [row[2] for row in processes[:5]] == ["0.53", "0.05", "0.12", "0.65", "0.008"]
    assert rows_of("eth1/rx-usecs", "P3 fig. 10")[0][1] == "≈\N{NO-BREAK SPACE}0.93"
    curves = rows_of("eth1/rx-usecs-high", "P3 fig. 11, P3 fig. 12, P3 fig. 13")
    assert [row[1] for row in curves] == ["LU", "EP", "SP"]
    assert "hurt" in curves[1][2]
    assert rows_of("MV2_SRQ_LIMIT", "P3 fig. 9")[0][1] == "9\N{NO-BREAK SPACE}µs"
    assert published_of(["VICINAL_PROGRESS"]) == []


def micro(*values: str) -> tuple[str, ...]:
    return tuple(f"{value}\N{NO-BREAK SPACE}µs" for value in values)


@pytest.mark.parametrize("missing", ["comparisons", "phases", "knobs", "present"])
def test_what_is_no_search_is_refused(folder: Path, tmp_path: Path, missing: str) -> None:
    found = json.loads((folder / "result.json").read_text())
    del found[missing]
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.json").write_text(json.dumps(found))
    with pytest.raises(VicinalError, match=r"has no result of a search"):
        read_searched(tmp_path)


def test_a_trade_off_names_each_setting(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    found = json.loads((folder / "result.json").read_text())
    # Simulate that a gain of P50 costs P99; the simulated machine has no such workload.
    found["phases"][0] |= {"outcome": "a trade-off", "setting": found["present"]}
    others = [each for each in found["comparisons"] if each["phase"] == "small"]
    found["finalists"]["small"] = [others[0]["point"], others[-1]["point"]]
    del found["mechanisms"]["small"]
    (tmp_path / "result.json").write_text(json.dumps(found))
    section = tuning("any", [read_searched(tmp_path)], [None])
    assert section is not None
    (search,) = section.searches
    rows = [row for row in search.gains.rows if row[0] == TITLES["small"]]
    assert len({row[1] for row in rows}) == len(rows) == 4
    assert rows[0][1] == "P50, eth1/rx-usecs=0 eth1/rx-frames=1"
    assert (
        "a trade-off; the best that were tried: eth1/rx-usecs=0 eth1/rx-frames=1; eth1"
        in search.sentences[1]
    )
    assert search.interrupts.rows[0][2:] == ("a trade-off", "–")


def test_the_command_shows_both(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result"
    one = tuple(each for each in EXAMPLE.workloads if each.driver != "record")[:1]
    write_result(result, replace(EXAMPLE, workloads=one, published=()))
    report_command.report([result], None, [folder, folder])
    page = result / "report/report.html"
    assert f"Written: {page}" in capsys.readouterr().out
    assert page.read_text().count("Moderation of a simulated card</h3>") == 2


def test_a_search_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match=r"none/manifest.json cannot be read \(no such file"):
        report_command.report([tmp_path], None, [tmp_path / "none"])
