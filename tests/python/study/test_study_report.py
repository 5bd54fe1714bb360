"""Reports of studies: the content of the page, of Markdown and of CSV, and the command."""

import csv
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_support import CHECKOUT, Vicinal
from launch_support import package_path
from PIL import Image
from report_summaries import (
    HOSTILE,
    hostile,
    manifest,
    small,
    small_source,
    source,
    study,
    summary,
)
from study_results import EXAMPLE, write_result

from vicinal.base.errors import VicinalError
from vicinal.labs.report import numbers
from vicinal.labs.report.axes import _ratio_ticks
from vicinal.labs.report.content import Source
from vicinal.labs.report.making import check_same_study, make_report, write_report
from vicinal.labs.report.palette import PAPER, ROLES, styles
from vicinal.labs.report.tables import failures
from vicinal.labs.study.analysis.as_json import summary_from_json
from vicinal.labs.study.analysis.summary import ControlFound
from vicinal.labs.study.result.reading import open_result
from vicinal.labs.study.result.writing import ResultWriter

pytest_plugins = ("report_fixture",)

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """The elements of a page, and whether each opened element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def written(example_report: Path) -> Path:
    return example_report.parent


@pytest.fixture(scope="module")
def page(example_report: Path) -> Page:
    return Page(example_report.read_text())


def test_page_is_whole_and_needs_nothing_else(page: Page) -> None:
    assert page.open == []
    assert not {"script", "iframe", "object", "img"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        for name in ("href", "src", "xlink:href"):
            link = attributes.get(name)
            assert link is None or link.startswith(("#", "data:,"))


def test_ids_are_its_own_and_links_lead_somewhere(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in ("href", "xlink:href", "aria-labelledby"):
            link = attributes.get(name)
            if link and not link.startswith("data:"):
                assert link.removeprefix("#") in ids
        for value in attributes.values():  # hatches and clips
            for reference in re.findall(r"url\(#([^)]*)\)", value or ""):
                assert reference in ids


def test_what_a_reader_looks_for_is_on_the_page(page: Page) -> None:
    text = " ".join(page.text)
    about = study()
    said = [
        about.title,
        about.question,
        "Guests are emulated",
        "its program is not here",  # unavailable
        "instead of 15",  # adapted
        "rank 1 ended with signal 9",  # failed
        "this pair of environments is no comparison",  # published, not measured
        "(broken)",
        "(kept)",
        "Example processor",
        "virtio_net",
        "20261123",  # the seed
        "FI_PROVIDER=vicinal",
        "measured twice in each block",
        "Hollow stars were published (P2 fig4a, P9 fig2)",
        *(environment.title for environment in about.environments),
        *(workload.title for workload in about.workloads),
    ]
    assert [each for each in said if each not in text] == []


def test_plots_are_there_thrice_and_say_what_they_show(written: Path, page: Page) -> None:
    drawn = [attributes for tag, attributes in page.elements if tag == "svg"]
    pictures = sorted((written / "plots").glob("*.png"))
    assert len(drawn) == len(pictures) == len(list((written / "plots").glob("*.svg"))) > 20
    for attributes in drawn:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 60
    for picture in pictures:
        with Image.open(picture) as image:
            assert len(image.convert("RGB").reduce(4).getcolors(1 << 24) or ()) > 10
        assert ElementTree.parse(picture.with_suffix(".svg")).getroot().tag.endswith("svg")


def test_an_environment_has_one_colour_everywhere(written: Path) -> None:
    looks = styles(study())
    assert len({style.color for style in looks.values()}) == len(looks)
    for name in ("01-latency-median", "02-bandwidth-mean", "07-lammps-mean"):
        drawn = (written / "plots" / f"{name}.svg").read_text()
        emulated = (written / "plots" / f"{name.replace('-m', '-emulated-m', 1)}.svg").read_text()
        for environment, style in looks.items():
            assert (style.color in drawn) == (environment != "guests")
            assert (style.color in emulated) == (environment == "guests")


def test_no_colour_of_a_plot_is_left_alone_in_the_dark(page: Page) -> None:
    """All colours are the page's variables: a fixed colour would not change with the scheme."""
    for _, attributes in page.elements:
        assert "#" not in (attributes.get("style") or "").replace("url(#", "")
        assert "#" not in (attributes.get("fill") or "").replace("url(#", "")


def test_tables_have_headers(page: Page) -> None:
    tags = [tag for tag, _ in page.elements]
    scopes = [attributes.get("scope") for tag, attributes in page.elements if tag == "th"]
    assert tags.count("table") == tags.count("caption") == tags.count("thead") > 10
    assert set(scopes) == {"col", "row"}


def test_markdown_has_all_of_it_aligned(written: Path) -> None:
    text = (written / "report.md").read_text()
    for heading in ("## The answer", "## Applications", "### MPI latency", "## The control"):
        assert f"\n{heading}\n" in text
    for table, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith("| ")):
        if table:
            assert len({len(line) for line in lines}) == 1
    for link in (line for line in text.splitlines() if line.startswith("![")):
        assert (written / link.rpartition("](")[2].removesuffix(")")).is_file()


def test_csv_is_tidy_with_units_in_its_headings(written: Path) -> None:
    with (written / "measured-latency.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"size_bytes", "value_us", "low_us", "high_us"} <= set(rows[0])
    expected = next(
        cell.across
        for cell in source().summary.cells
        if (cell.environment, cell.workload, cell.size) == ("region", "latency", 4096)
    )
    found = {
        row["statistic"]: float(row["value_us"])
        for row in rows
        if (row["environment"], row["workload"], row["size_bytes"]) == ("region", "latency", "4096")
    }
    assert found == {str(statistic): each.value for statistic, each in expected.items()}
    with (written / "compared-bandwidth.csv").open() as file:
        compared = list(csv.DictReader(file))
    assert {"base_MB_per_s", "test_MB_per_s", "ratio", "verdict"} <= set(compared[0])


@pytest.mark.usefixtures("no_png")
def test_text_from_outside_stays_text(tmp_path: Path) -> None:
    write_report([hostile()], tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    assert page.open == []
    assert not {"script", "img", "a:b"} & {tag for tag, _ in page.elements}
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert not (attributes.get("href") or "#").startswith("javascript")
    assert HOSTILE in " ".join(page.text)
    markdown = (tmp_path / "report.md").read_text()
    assert "<script" not in markdown.replace("\\<script", "")
    assert "[a](" not in markdown.replace("\\[a\\](", "")


@pytest.mark.usefixtures("no_png")
def test_commands_in_notes_are_set_as_such(tmp_path: Path) -> None:
    made = small_source("result")
    note = "Run `vicinal study run --with-npb PATH`, or `a<b>|*c*`; <i>*` is text."
    told = replace(made.summary, study=replace(made.summary.study, notes=(note,)))
    write_report([replace(made, summary=told)], tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Run <code>vicinal study run --with-npb PATH</code>, or" in page
    assert "<code>a&lt;b&gt;|*c*</code>; &lt;i&gt;*` is text." in page
    assert (
        "- Run `vicinal study run --with-npb PATH`, or `a<b>|*c*`; \\<i\\>\\*\\` is text."
        in (tmp_path / "report.md").read_text()
    )


@pytest.mark.parametrize(
    ("test", "words"),
    [(50, "50 % less"), (6, "94 % less"), (0.2, "1/500 of it"), (310, "3.10 times as much")],
)
def test_changes_are_told_apart_where_percents_are_not_enough(test: float, words: str) -> None:
    assert numbers.change(100, test).replace("\xa0", " ") == words


def test_a_trial_that_failed_is_said_once_and_not_of_each_size() -> None:
    made = summary(small())
    cells = [replace(made.cells[0], size=size, failures=("trial 3: hung",)) for size in (8, 4096)]
    (said,) = failures(made, cells)
    assert said.endswith(": trial 3: hung")
    assert "KiB" not in said
    (one,) = failures(made, cells[1:])
    assert one.replace("\xa0", " ").endswith(", 4 KiB: trial 3: hung")


def test_two_results_stand_beside_each_other(report_of_two: Path) -> None:
    page = Page(report_of_two.read_text())
    text = " ".join(page.text)
    assert "The results beside each other" in text
    assert {"r1", "r2", "across"} <= {attributes.get("id") for _, attributes in page.elements}
    with report_of_two.with_name("measured-latency.csv").open() as file:
        assert {row["result"] for row in csv.DictReader(file)} == {"monday", "tuesday"}


def test_results_of_different_studies_are_refused() -> None:
    with pytest.raises(VicinalError, match="different studies: quick, fig4"):
        check_same_study(["quick", "fig4", "quick"])


def test_numbers_are_written_for_people() -> None:
    assert [numbers.number(each) for each in (0.2204, 12.34, 1234.5, 0, -3.14159, -416.2)] == [
        *("0.220", "12.3", "1\N{NARROW NO-BREAK SPACE}234", "0", "−3.14", "−416"),
    ]
    assert numbers.percent(-0.0312, signed=True) == "−3.1\N{NO-BREAK SPACE}%"
    assert numbers.p_value(0.0004).startswith("<")
    assert numbers.size(4096) == "4\N{NO-BREAK SPACE}KiB"


@pytest.mark.parametrize(("low", "high"), [(0.95, 1.06), (0.3, 1.1), (0.9, 11), (0.001, 40)])
def test_ratio_axes_have_one_among_few_ticks(low: float, high: float) -> None:
    ticks = _ratio_ticks(low, high)
    assert 1.0 in ticks
    assert 2 <= len(ticks) <= 8


def contrast(one: str, other: str) -> float:
    """The contrast ratio of the Web Content Accessibility Guidelines 2.2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_from_their_ground() -> None:
    for role in ROLES:
        least = {"--ink": 7, "--muted": 4.5}.get(role.variable, 3)
        if role.variable not in ("--grid", "--band", "--paper"):
            assert contrast(role.light, PAPER.light) >= least, role
            assert contrast(role.dark, PAPER.dark) >= least, role


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "monday"
    few = tuple(each for each in EXAMPLE.workloads if each.driver != "record")
    write_result(folder, replace(EXAMPLE, workloads=few, published=()))
    return folder


def test_a_file_is_no_result(vicinal: Vicinal, tmp_path: Path) -> None:
    """The message must not blame the user's permissions."""
    file = tmp_path / "report.html"
    file.write_text("")
    assert (
        f"{file} is not a folder: name a folder that"
        in vicinal("study", "report", str(file)).stderr
    )


def test_command_makes_the_report_anew(vicinal: Vicinal, result: Path, tmp_path: Path) -> None:
    done = vicinal("study", "report", str(result), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert f"Written: {tmp_path / 'out' / 'report.html'}" in done.stdout
    page = Page((tmp_path / "out/report.html").read_text())
    assert "An example that nobody measured" in " ".join(page.text)
    assert not list((tmp_path / "out").rglob("*.part"))
    assert summary_from_json(open_result(result).summary()).study.name == "example"


def test_command_names_what_is_no_result(vicinal: Vicinal, tmp_path: Path) -> None:
    done = vicinal("study", "report", str(tmp_path))
    assert done.returncode == 1
    assert "manifest.json cannot be read" in done.stderr
    assert "name a folder that vicinal study run wrote" in done.stderr


@pytest.mark.usefixtures("no_png")
def test_a_control_that_was_not_tested_claims_nothing(tmp_path: Path) -> None:
    made = replace(summary(small()), control=ControlFound("native", 0, (), 0.027, untested=5))
    text = write_report([Source(made, manifest(), "x")], tmp_path).read_text()
    assert "In 5 of 5 cells there were too few blocks" in text
    assert "differed from itself in none" not in text


LARGE_CALLS, LARGE_BYTES = 4_000_000, 1 << 30
"""Twice the number of calls that a report of any size costs, most of them in Matplotlib."""


@pytest.mark.long
def test_no_plot_does_work_for_each_of_ten_million_samples(tmp_path: Path) -> None:
    """A separate process measures its memory and counts calls of VFs."""
    script = CHECKOUT / "tests/python/study/report_large.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "result", "--calls"],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["samples"] == 10_000_000
    assert measured["calls"] < LARGE_CALLS
    assert measured["memory_bytes"] < LARGE_BYTES


@pytest.mark.usefixtures("no_png")
def test_a_result_that_is_written_to_is_read_only(result: Path, tmp_path: Path) -> None:
    (result / "summary.json").unlink(missing_ok=True)
    with ResultWriter.resume(result)[0]:
        assert make_report([result], tmp_path).page.is_file()
    assert not (result / "summary.json").exists()


@pytest.mark.usefixtures("no_png")
def test_what_is_emulated_is_called_so(tmp_path: Path) -> None:
    about = small()
    plain = tuple(replace(each, title=f"place {each.name}") for each in about.environments)
    made = summary(replace(about, environments=plain))
    page = write_report(
        [Source(replace(made, emulated=("guests",), published=()), manifest(), "x")], tmp_path
    )
    text = page.read_text()
    assert text.count("place guests") == text.count("place guests (emulated)") > 5
    assert "place native (emulated)" not in text
