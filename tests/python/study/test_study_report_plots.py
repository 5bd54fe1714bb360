"""Plots of reports: their lines, the published figures in them, and plots of several results."""

import csv
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from report_summaries import manifest, small, small_source, source, study, summary

from vicinal.labs.report import curves, references
from vicinal.labs.report.content import Drawn, Part, Section, Source, part
from vicinal.labs.report.drawing import Plot
from vicinal.labs.report.lines import may_be_joined, with_gaps, wrong_lines
from vicinal.labs.report.making import write_report
from vicinal.labs.report.overlay import Overlaid, overlays
from vicinal.labs.report.palette import BASE_LIGHT, LIGHT, MARKERS, styles
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Cell, PublishedComparison, Summary
from vicinal.labs.study.file.model import (
    Comparison,
    Published,
    Quantity,
    Statistic,
    Study,
    Workload,
)

pytest_plugins = ("report_fixture",)


def plots_of(chosen: Summary) -> tuple[Part, dict[str, Plot]]:
    """A part of a report, and its plots before they are written."""
    plots: dict[str, Plot] = {}

    def draw(plot: Plot) -> Drawn:
        plots[plot.name] = plot
        return Drawn(plot.name, plot.title, plot.alternative, "")

    return part(Source(chosen, manifest(), "x"), "", draw), plots


def section_of(made: Part, title: str) -> Section:
    return next(each for group in made.groups for each in group.sections if each.title == title)


def joined(plot: Plot) -> set[tuple[int, int]]:
    """The pairs of sizes that the plot's lines join, read from the drawing itself."""
    exponents = {float(np.log2(size)): size for size in plot.sizes if size > 0}
    found = set()
    for line in plot.figure.axes[0].lines:
        if line.get_linestyle() != "None" and not str(line.get_label()).startswith("_"):
            for left, right in pairwise(np.asarray(line.get_xydata())):
                if np.isfinite(left).all() and np.isfinite(right).all():
                    found.add((exponents.get(left[0], 0), exponents.get(right[0], 0)))
    return found


def stars_in(plot: Plot) -> list[Line2D]:
    """The star-shaped markers of a plot."""
    return [
        line
        for line in plot.figure.axes[0].lines
        if isinstance(marker := line.get_marker(), tuple) and marker[1] == 1
    ]


def position_of(star: Line2D) -> tuple[float, float]:
    ((across, up),) = np.asarray(star.get_xydata())
    return across, up


def legend_of(plot: Plot) -> list[str]:
    return [text.get_text() for legend in plot.figure.legends for text in legend.get_texts()]


# Lines


def with_sizes(*sizes: int) -> Study:
    about = small()
    return replace(
        about, workloads=(replace(about.workloads[0], sizes=sizes), *about.workloads[1:])
    )


@pytest.mark.usefixtures("no_png")
def test_no_line_is_drawn_over_what_nobody_measured_and_the_rule_is_kept(tmp_path: Path) -> None:
    """The sizes alone must not mark the rule as broken: the drawn lines decide."""
    made = summary(with_sizes(8, 64, 8192, 16384))
    found, plots = plots_of(made)
    assert joined(plots["01-latency-median"]) == {(8, 64), (8192, 16384)}
    assert found.rules[-1].name == "lines"
    assert found.rules[-1].broken == ()
    assert [mark.rule for mark in section_of(found, "MPI latency").marks] == []
    text = write_report([Source(made, manifest(), "x")], tmp_path).read_text()
    assert "<b>lines</b> (kept)" in text
    assert "kept: **lines**" in (tmp_path / "report.md").read_text()


@pytest.mark.usefixtures("no_png")
def test_progress_counts_up_to_the_tables_and_the_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Plots without data, which were expected, do not count as missing."""
    made = summary(with_sizes(8, 64))
    write_report([Source(made, manifest(), "x")], tmp_path)
    last = capfd.readouterr().err.rstrip().splitlines()[-1]  # older ones of rich add a line
    said = re.fullmatch(r"\[(\d+)/(\d+)\] writing the page", last)
    assert said is not None, last
    assert int(said[1]) == int(said[2]) - 1


def test_no_line_leads_from_nothing_to_a_large_message() -> None:
    _, plots = plots_of(summary(with_sizes(0, 1024, 4096)))
    assert joined(plots["01-latency-median"]) == {(1024, 4096)}
    _, plots = plots_of(summary(with_sizes(0, 16)))
    assert joined(plots["01-latency-median"]) == {(0, 16)}


@pytest.mark.usefixtures("no_png")
def test_a_line_that_should_not_be_there_is_found_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "with_gaps", lambda sizes: sizes)
    made = summary(with_sizes(8, 129))
    found, _ = plots_of(made)
    broken = found.rules[-1].broken
    assert "native, latency: a line joins 8 and 129 B, and nothing in between" in broken
    assert len(broken) == len(made.study.environments)
    (mark,) = section_of(found, "MPI latency").marks
    assert (mark.rule, mark.broken) == ("lines", broken)
    text = write_report([Source(made, manifest(), "x")], tmp_path).read_text()
    assert "<b>lines</b> (broken)" in text
    assert "Breaks the rule “lines” 4 times" in text


def test_a_line_between_environments_is_found() -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([1.0, 2.0], [0, 1], label="native")
    axes.axvline(1.0)  # joins nothing
    axes.plot([1.0, 2.0], [0, 1], linestyle="none", marker="o")
    plot = Plot("x", "X", "X", figure)
    assert list(wrong_lines(plot, "hpl")) == [
        "native, hpl: a line joins points between which there is nothing"
    ]
    assert list(wrong_lines(replace(plot, continuous=True), "hpl")) == []


def test_every_plot_of_a_whole_report_is_looked_at() -> None:
    found, plots = plots_of(source().summary)
    assert found.rules[-1].broken == ()
    of_sizes = [plot for plot in plots.values() if plot.sizes]
    drawn = [pairs for plot in of_sizes if (pairs := joined(plot))]
    # Absolute values of what has sizes that are near each other, real and emulated.
    assert len(drawn) == 8
    assert joined(plots["03-put-p99"]) == set()
    assert all(may_be_joined(*pair) for pairs in drawn for pair in pairs)
    continuous = {name for name, plot in plots.items() if plot.continuous}
    assert continuous == {name for name in plots if "-tail-" in name}


def test_lines_join_neighbours_alone() -> None:
    assert may_be_joined(8, 128)
    assert not may_be_joined(8, 129)
    assert may_be_joined(0, 16)
    assert not may_be_joined(0, 17)
    assert list(with_gaps([8, 64, 8192, 16384])) == [8, 64, None, 8192, 16384]
    assert list(with_gaps([0, 1024])) == [0, None, 1024]
    assert list(with_gaps([])) == []


# Published figures


def published_figure(
    value: float,
    unit: str,
    whose: str | tuple[str, str],
    size: int | None = 64,
    quantity: Quantity = Quantity.LATENCY,
    workload: str = "latency",
    statistic: Statistic = Statistic.MEDIAN,
) -> PublishedComparison:
    environment, comparison = (whose, None) if isinstance(whose, str) else (None, whose)
    figure = Published(
        *("P9 fig1", workload, quantity, value, unit, environment, comparison, size, statistic)
    )
    return PublishedComparison(figure, None, "it was not")


def latency() -> Workload:
    return small().workload("latency")


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (published_figure(1.5, "µs", "region"), 1.5),
        (published_figure(0.0015, "ms", "region"), 1.5),
        (published_figure(1.5, "MB/s", "region", quantity=Quantity.BANDWIDTH), None),
        (published_figure(1.5, "MB/s", "region"), None),
        (published_figure(0.4, "ratio", ("native", "region")), None),
        (published_figure(0.04, "p", ("native", "region")), None),
        (published_figure(1.5, "µs", "region", statistic=Statistic.MEAN), None),
        (published_figure(1.5, "µs", "region", size=None), None),
        (published_figure(1.5, "µs", "region", workload="bandwidth"), None),
        (published_figure(0.0, "µs", "region"), None),
    ],
)
def test_what_is_published_stands_among_absolute_values_of_its_kind(
    figure: PublishedComparison, expected: float | None
) -> None:
    found = references.of_values([figure], latency(), Statistic.MEDIAN, "µs")
    assert [each.value for each in found] == pytest.approx([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (published_figure(0.4, "ratio", ("native", "region")), [0.4]),
        (published_figure(0.04, "p", ("native", "region")), []),
        (published_figure(1.5, "µs", "region"), []),
        (
            published_figure(0.4, "ratio", ("native", "region"), size=None),
            [],
        ),  # `up to`: without a size
        (published_figure(0.4, "ratio", ("native", "region"), statistic=Statistic.P99), []),
    ],
)
def test_what_is_published_stands_among_ratios_if_it_is_one(
    figure: PublishedComparison, expected: list[float]
) -> None:
    found = references.of_ratios([figure], latency(), Statistic.MEDIAN)
    assert [each.value for each in found] == expected


def test_stars_are_where_the_paper_has_them_and_nothing_measured_is_one() -> None:
    made = replace(
        summary(small()),
        published=(
            published_figure(0.5, "µs", "region", size=4),
            published_figure(20.0, "µs", "guests", size=1),
            published_figure(0.7, "ratio", ("native", "region"), size=4),
        ),
    )
    found, plots = plots_of(made)
    looks = styles(made.study)
    absolute = stars_in(plots["01-latency-median"])
    assert [position_of(star) for star in absolute] == [(2, 0.5), (0, 20)]
    assert [star.get_markeredgecolor() for star in absolute] == [
        looks["region"].color,
        looks["guests"].color,
    ]
    for name in ("glance", "glance-narrow"):
        (star,) = stars_in(plots[name])
        assert position_of(star)[0] == pytest.approx(1 / 0.7)  # right is better there
    assert found.glances[0].stars.startswith("Hollow stars were published (P9 fig1)")
    (ratio,) = stars_in(plots["01-latency-median-ratio"])
    assert position_of(ratio)[1] == 0.7
    for star in (*absolute, ratio):
        assert star.get_markerfacecolor() == "#ffffff"
        assert star.get_linestyle() == "None"
    assert not set(MARKERS) & {"*", (5, 1, 0.0)}
    assert "published, P9 fig1" in legend_of(plots["01-latency-median"])
    words = plots["01-latency-median"].alternative
    assert "Stars, published: Containers with the region: 0.500\N{NO-BREAK SPACE}µs at" in words
    said = section_of(found, "MPI latency").stars
    assert said.startswith("Hollow stars were published (P9 fig1), of other machines")
    assert "adapted" not in said


def test_axes_reach_to_what_was_published() -> None:
    """This also holds at a size that this study left out."""
    made = replace(
        summary(small()), published=(published_figure(900.0, "µs", "region", size=65536),)
    )
    _, plots = plots_of(made)
    plot = plots["01-latency-median"]
    axes = plot.figure.axes[0]
    (star,) = stars_in(plot)
    low, high = axes.get_xlim()
    assert low < position_of(star)[0] == 16 < high
    low, high = axes.get_ylim()
    assert low < 900 < high
    assert joined(plot) == {(1, 4), (4, 16)}


def test_who_was_published_and_not_measured_is_named() -> None:
    about = small()
    left = tuple(cell for cell in summary(about).cells if cell.environment != "guests")
    made = replace(
        summary(about),
        cells=left,
        published=(
            published_figure(2.0, "µs", "guests", size=4),
            published_figure(
                33.0, "GFLOPS", "guests", None, Quantity.PERFORMANCE, "hpl", Statistic.MEAN
            ),
        ),
    )
    _, plots = plots_of(made)
    assert "published: Two guests (emulated) with the region" in legend_of(
        plots["01-latency-median"]
    )
    lanes = [text.get_text() for text in plots["02-hpl-mean"].figure.axes[0].texts]
    assert "Two guests (emulated) with the region: published only" in lanes


def test_ratios_of_one_environment_to_several_are_told_apart() -> None:
    pairs = (("native", "region"), ("network", "region"))
    found = references.of_ratios(
        [published_figure(0.4, "ratio", pair) for pair in pairs], latency(), Statistic.MEDIAN
    )
    measured = [Comparison("native", "region", "what it costs")]
    looks = references.looks_of(found, measured, styles(study()))
    assert {look.points for look in looks.values()} == {5, 4}
    labels = [each.label for each in references.legend(found, looks, measured)]
    assert labels == [
        "published, P9 fig1",
        "published: Containers with the region / Containers over TCP",
    ]


def test_what_ran_adapted_and_of_whom_it_was_published_is_said() -> None:
    figure = published_figure(0.5, "µs", "region")
    other = replace(
        figure, adapted=True, published=replace(figure.published, note="published of ivshmem")
    )
    found = references.of_values([other], latency(), Statistic.MEDIAN, "µs")
    said = references.note(found, (), styles(study()))
    assert "“Containers with the region”: published of ivshmem. The measurements" in said
    assert "ran adapted" in said
    looks = references.looks_of(found, (), styles(study()))
    assert "the region (published of ivshmem): 0.500" in references.words(found, looks, "µs")
    assert references.note([], (), {}) == ""


def test_long_titles_in_a_legend_are_broken_and_have_room() -> None:
    about = small()
    long = "a virtual machine on each host with a virtual function of its own, rx-frames 88"
    titled = tuple(replace(each, title=f"{each.name}: {long}") for each in about.environments)
    _, plots = plots_of(summary(replace(about, environments=titled)))
    plot = plots["01-latency-median"]
    *labels, star = legend_of(plot)
    assert [label.count("\n") for label in labels] == [1] * 4
    assert "\n" not in star
    FigureCanvasAgg(plot.figure).draw()  # type: ignore[no-untyped-call]  # Matplotlib has it so
    (legend,) = plot.figure.legends
    box, below = legend.get_window_extent(), plot.figure.axes[0].get_window_extent()
    assert box.x1 < plot.figure.bbox.x1
    assert box.y0 > below.y1


# Emulation


def emulated_plots() -> tuple[Part, dict[str, Plot]]:
    """Guests are emulated, and a star of theirs was published."""
    about = small()
    guests = replace(about.environments[3], title="Two guests")
    about = replace(about, environments=(*about.environments[:3], guests))
    made = summary(about)
    stars = (
        published_figure(20.0, "µs", "guests", size=1),
        published_figure(0.7, "ratio", ("native", "guests")),
    )
    return plots_of(replace(made, emulated=("guests",), published=stars))


def test_emulated_environments_share_no_axis_with_real_ones() -> None:
    found, plots = emulated_plots()
    real, emulated = plots["01-latency-median"], plots["01-latency-emulated-median"]
    assert set(lines_of(real)) == {"native", "region", "network"}
    assert set(lines_of(emulated)) == {"guests"}
    assert emulated.title == "MPI latency, emulated: median"
    assert legend_of(emulated) == ["Two guests (emulated)"]
    assert legend_of(plots["01-latency-emulated-median-ratio"]) == [
        "Two guests (emulated) / Native, own shared memory"
    ]
    assert not any("guests" in each for each in legend_of(plots["01-latency-median-ratio"])[:2])
    section = section_of(found, "MPI latency")
    assert all("-emulated-" in plot.name for plot in section.emulated_plots)
    assert not any("-emulated-" in plot.name for plot in section.plots)
    assert len(section.emulated_plots) >= 3


def test_emulated_comparisons_have_a_glance_of_their_own() -> None:
    found, plots = emulated_plots()
    assert [each.emulated for each in found.glances] == [False, True]
    assert "Two guests (emulated): " not in plots["glance"].alternative
    words = plots["glance-emulated"].alternative
    assert words.startswith("All workloads at a glance, emulated beside Native")
    assert "Two guests (emulated)" in words
    assert "Containers" not in words


def test_what_was_published_of_real_machines_stands_among_real_ones() -> None:
    _, plots = emulated_plots()
    assert [position_of(star)[1] for star in stars_in(plots["01-latency-median"])] == [20]
    assert "published: Two guests" in legend_of(plots["01-latency-median"])
    emulated = [plot for name, plot in plots.items() if "emulated" in name]
    assert not any(stars_in(plot) for plot in emulated)


def test_emulated_results_are_not_laid_over_real_ones() -> None:
    real, also = overlaid("monday", 1), overlaid("tuesday", 2)
    emulated = [replace(overlaid(name, 3), emulated=("guests",)) for name in ("third", "fourth")]
    names = {plot.name: legend_of(plot) for plot in overlays([real, also, *emulated])}
    assert names["overlay-01-latency-guests-median"] == ["monday", "tuesday"]
    assert names["overlay-01-latency-guests-median-emulated"] == ["third", "fourth"]
    assert len(names["overlay-01-latency-region-median"]) == 4
    assert not any("-guests-" in plot.name for plot in overlays([real, emulated[0]]))


def test_markers_of_comparisons_stand_beside_each_other() -> None:
    made = summary(with_sizes(1, 4, 16))
    _, plots = plots_of(made)
    axes = plots["01-latency-median-ratio"].figure.axes[0]
    positions = {
        round(float(across), 3)
        for line in axes.lines
        if line.get_marker() in MARKERS
        for across in np.asarray(line.get_xdata())
    }
    assert len(positions) == 9  # three comparisons at three sizes
    ordered = sorted(positions)
    assert min(right - left for left, right in pairwise(ordered)) > 0.3


# Where time is gained


def test_parts_of_both_sides_are_on_the_page_in_markdown_and_csv(example_report: Path) -> None:
    name = "Communication and computation, Containers over TCP beside Native, own shared memory"
    assert f"<summary>{name}</summary>" in example_report.read_text()
    assert name in (example_report.parent / "report.md").read_text()
    with (example_report.parent / "compared-parts.csv").open() as file:
        rows = list(csv.DictReader(file))
    compared = [each for each in source().summary.compared if each.split is not None]
    assert len(rows) == 3 * len(compared) == 9
    split = compared[1].split
    assert split is not None
    found = {
        row["part"]: row for row in rows if (row["base"], row["test"]) == ("native", "network")
    }
    assert list(found) == ["together", "communication", "computation"]
    together, communication, computation = found.values()
    assert float(communication["base_s"]) == split.theirs.communication.value
    assert float(communication["test_high_s"]) == split.ours.communication.high
    assert split.communication is not None
    assert float(communication["ratio"]) == split.communication.value
    saved = [float(row["saved_s"]) for row in (communication, computation)]
    assert sum(saved) == pytest.approx(float(together["saved_s"])) == pytest.approx(split.saved)
    for side in ("base", "test"):
        parts = [float(row[f"{side}_s"]) for row in (communication, computation)]
        assert sum(parts) == pytest.approx(float(together[f"{side}_s"]))
        shares = [float(row[f"{side}_share"]) for row in (communication, computation)]
        assert sum(shares) == pytest.approx(1.0)


@pytest.mark.usefixtures("no_png")
def test_what_says_nothing_of_its_parts_has_no_such_table(tmp_path: Path) -> None:
    write_report([small_source("monday")], tmp_path)
    assert not (tmp_path / "compared-parts.csv").exists()
    assert "Communication and computation" not in (tmp_path / "report.html").read_text()


# Several results


def overlaid(name: str, seed: int, chosen: Study | None = None) -> Overlaid:
    made = summary(chosen or small(), seed)
    return Overlaid(name, made.study, made.cells)


def lines_of(plot: Plot) -> dict[str, list[float]]:
    """The values of each line, by the name of its result."""
    return {
        str(line.get_label()): [float(value) for value in np.asarray(line.get_ydata())]
        for line in plot.figure.axes[0].lines
        if not str(line.get_label()).startswith("_")
    }


def values_of(result: Overlaid, environment: str, workload: str) -> list[Estimate]:
    return [
        cell.across[Statistic.MEDIAN]
        for cell in result.cells
        if (cell.environment, cell.workload) == (environment, workload)
    ]


def test_results_are_laid_over_each_other_with_intervals() -> None:
    results = [overlaid(name, seed) for seed, name in enumerate(("monday", "tuesday", "friday"))]
    plots = {plot.name: plot for plot in overlays(results)}
    assert len(plots) == 4 + 3  # environments with latency, and with HPL
    plot = plots["overlay-01-latency-region-median"]
    assert plot.title == "MPI latency, Containers with the region: median"
    assert legend_of(plot) == ["monday", "tuesday", "friday"]
    colors = {line.get_label(): line.get_color() for line in plot.figure.axes[0].lines}
    assert [colors[each.name] for each in results] == [BASE_LIGHT, *LIGHT[:2]]
    drawn = lines_of(plot)
    bars = [
        segment
        for collection in plot.figure.axes[0].collections
        for segment in collection.get_segments()  # type: ignore[attr-defined]
    ]
    for result in results:
        estimates = values_of(result, "region", "latency")
        assert drawn[result.name] == [each.value for each in estimates]
        for each in estimates:
            assert any(segment[:, 1] == pytest.approx([each.low, each.high]) for segment in bars)
    lanes = [text.get_text() for text in plots["overlay-02-hpl-region-mean"].figure.axes[0].texts]
    assert [lane.partition(":")[0] for lane in lanes] == ["monday", "tuesday", "friday"]


def test_an_environment_that_one_result_has_alone_is_not_laid_over_anything() -> None:
    first, second = overlaid("monday", 1), overlaid("tuesday", 2)
    fewer = replace(second, cells=[cell for cell in second.cells if cell.environment != "network"])
    names = [plot.name for plot in overlays([first, fewer])]
    assert names
    assert not any("-network-" in name for name in names)


def in_gigabytes(cell: Cell) -> Cell:
    values = {name: tuple(value / 1000 for value in each) for name, each in cell.values.items()}
    across = {name: median_estimate(each) for name, each in values.items()}
    return replace(cell, unit="TFLOPS", values=values, across=across)


def test_units_that_differ_are_converted_or_left_out() -> None:
    first, second = overlaid("monday", 1), overlaid("tuesday", 1)
    others = [cell for cell in second.cells if cell.workload == "hpl" and cell.across]
    same = replace(second, cells=[in_gigabytes(cell) for cell in others])
    (plot,) = [each for each in overlays([first, same]) if "-region-" in each.name]
    texts = [text.get_text() for text in plot.figure.axes[0].texts]
    assert len({text.partition(": ")[2] for text in texts}) == 1
    assert texts[0].endswith("GFLOPS")
    strange = replace(second, cells=[replace(cell, unit="furlongs") for cell in others])
    assert list(overlays([first, strange])) == []


@pytest.mark.usefixtures("no_png")
def test_a_report_of_several_results_has_them_in_one_plot(
    report_of_two: Path, tmp_path: Path
) -> None:
    plots = report_of_two.with_name("plots")
    names = sorted(path.stem for path in plots.glob("overlay-*.png"))
    assert len(names) == 7
    assert report_of_two.read_text().count("MPI latency, Containers with the region: median") >= 2
    markdown = report_of_two.with_name("report.md").read_text()
    assert all(f"(plots/{name}.png)" in markdown for name in names)
    alone = write_report([small_source("monday", 1)], tmp_path / "alone")
    assert "overlay" not in alone.read_text()
    assert not list((tmp_path / "alone/plots").glob("overlay-*"))
