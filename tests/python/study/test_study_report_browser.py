"""A report in a browser: Debian's chromium without a screen, driven by Playwright.

The tests view the page as readers do: narrow and wide, light and dark, printed, by keyboard.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from report_summaries import hostile, small_source
from search_folders import search_folder

from vicinal.labs.report.making import write_report
from vicinal.labs.tune.outputs.searched import read_searched

pytest_plugins = ("report_fixture",)

CHROMIUM = "/usr/bin/chromium-headless-shell"
MILLISECONDS = 120_000
LOOKS = [(width, scheme) for width in (360, 1600) for scheme in ("light", "dark")]

OVERFLOWING = """() => [...document.querySelectorAll("body *")]
  .filter(each => !each.closest(".scroll > *, svg > *, .heard, .skip"))
  .filter(each => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 0.5)
  .map(each => each.outerHTML.slice(0, 120))"""
EMPTY = """() => [...document.querySelectorAll("figure svg")]
  .filter(each => each.checkVisibility())
  .filter(each => {
    const box = each.getBoundingClientRect();
    const marks = [...each.querySelectorAll("path, use")]
      .map(mark => mark.getBoundingClientRect())
      .filter(mark => mark.width + mark.height > 0);
    const texts = each.querySelectorAll("text");
    return box.width < 200 || box.height < 60 || marks.length < 8 || texts.length < 3;
  }).map(each => each.getAttribute("aria-label"))"""
SHOWN = """() => [...document.querySelectorAll("figure svg")]
  .filter(each => each.checkVisibility()).length"""
OUTSIDE = """() => [...document.querySelectorAll("figure svg text")]
  .filter(each => each.checkVisibility())
  .filter(each => {
    const box = each.getBoundingClientRect(), plot = each.closest("svg").getBoundingClientRect();
    return box.left < plot.left - 3 || box.right > plot.right + 3;
  }).map(each => each.textContent)"""
FOCUSED = """() => document.activeElement.tagName + document.activeElement.className"""
GROUND = """() => getComputedStyle(document.body).backgroundColor"""
INK = """() => getComputedStyle(document.querySelector("figure svg text")).fill"""


@dataclass
class Seen:
    """The requests and the error messages of a page."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert Path(CHROMIUM).exists(), "apt-get install chromium-headless-shell: scripts/setup does"
    # As root, as in containers, chromium needs to run without its sandbox.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=options, timeout=MILLISECONDS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def report(example_report: Path) -> Path:
    return example_report


def opened(browser: Browser, path: Path, width: int, scheme: str) -> tuple[Page, Seen]:
    seen = Seen()
    size: ViewportSize = {"width": width, "height": 900}
    page = browser.new_page(viewport=size, color_scheme="dark" if scheme == "dark" else "light")
    page.set_default_timeout(MILLISECONDS)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
    page.goto(path.as_uri())
    return page, seen


@pytest.mark.parametrize(
    ("width", "scheme"),
    [pytest.param(*look, marks=() if look == LOOKS[0] else pytest.mark.long) for look in LOOKS],
)
def test_page_looks_right(browser: Browser, report: Path, width: int, scheme: str) -> None:
    page, seen = opened(browser, report, width, scheme)
    assert seen.complaints == []
    assert seen.requests == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(SHOWN) > 20
    assert page.evaluate(EMPTY) == []
    assert page.evaluate(OUTSIDE) == []
    light = {"ground": "rgb(255, 255, 255)", "ink": "rgb(26, 29, 33)"}
    found = {"ground": page.evaluate(GROUND), "ink": page.evaluate(INK)}
    assert (found == light) == (scheme == "light")
    page.close()


WIDEST = """() => Math.max(...[...document.querySelectorAll("main > section > *")]
  .filter(each => each.checkVisibility()).map(each => each.getBoundingClientRect().right))"""


def test_page_uses_its_width_and_folds(browser: Browser, report: Path) -> None:
    for width, columns in ((1400, 3), (400, 1)):
        page, _ = opened(browser, report, width, "light")
        assert page.evaluate(WIDEST) > 0.94 * width
        grid = "getComputedStyle(document.querySelector('.plots')).gridTemplateColumns"
        assert len(page.evaluate(grid).split()) == columns
        page.close()


STARS = """colour => [...document.querySelectorAll("figure svg use, figure svg path")]
  .filter(each => each.checkVisibility())
  .filter(each => getComputedStyle(each).stroke == colour)
  .filter(each => getComputedStyle(each).fill == getComputedStyle(document.body).backgroundColor)
  .length"""


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_published_figures_are_hollow_on_any_ground(
    browser: Browser, report: Path, scheme: str
) -> None:
    """A star's inside has the ground's colour; its edge has the environment's colour."""
    page, _ = opened(browser, report, 1600, scheme)
    assert page.get_by_text("Hollow stars were published (P2 fig4a, P9 fig2)").is_visible()
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert page.evaluate(STARS, ink) >= 4  # in legends
    page.close()


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_results_laid_over_each_other_look_right(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    names = ("monday", "a day with a name that is much longer than those of others")
    sources = [small_source(name, seed) for seed, name in enumerate(names)]
    path = write_report(sources, tmp_path)
    page, seen = opened(browser, path, width, scheme)
    assert seen.complaints == []
    assert seen.requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(EMPTY) == []
    assert page.evaluate(OUTSIDE) == []
    laid_over = page.locator("section[aria-labelledby=across] figure svg")
    assert laid_over.count() == 7
    assert laid_over.first.is_visible()
    page.close()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    searches = [read_searched(search_folder(folder / "search"))]
    return write_report([small_source("monday", 1)], folder, searches)


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_tuning_looks_right(browser: Browser, tuned: Path, width: int, scheme: str) -> None:
    page, seen = opened(browser, tuned, width, scheme)
    assert seen.complaints == []
    assert seen.requests == [tuned.as_uri()]
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    section = page.locator("section[aria-labelledby=tuning]")
    page.get_by_role("link", name="Tuning").click()
    assert section.get_by_role("heading", name="Moderation of a simulated card").is_visible()
    assert section.get_by_text("mechanism not established").count() == 1
    assert section.locator("tr.better").count() == 4
    page.close()


@pytest.mark.long
def test_all_tables_open_fit_too(browser: Browser, report: Path) -> None:
    page, _ = opened(browser, report, 360, "light")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(OVERFLOWING) == []
    page.close()


@pytest.mark.long
def test_keyboard_reaches_contents_and_tables(browser: Browser, report: Path) -> None:
    page, _ = opened(browser, report, 1600, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    assert {"A", "SUMMARY", "DIVscroll"} <= reached
    page.close()


@pytest.mark.long
def test_it_prints_with_every_table(browser: Browser, report: Path) -> None:
    page, seen = opened(browser, report, 1600, "dark")
    printed = page.pdf(format="A4", print_background=True)
    assert seen.complaints == []
    assert printed.startswith(b"%PDF-")
    assert 8 < printed.count(b"/Type /Page\n") < 80
    page.emulate_media(media="print")
    hidden = """() => [...document.querySelectorAll("details td")]
      .filter(each => each.getBoundingClientRect().height == 0).length"""
    assert page.evaluate(hidden) == 0
    assert page.evaluate(GROUND) == "rgb(255, 255, 255)"  # paper is not dark
    page.close()


def test_nothing_from_outside_runs(browser: Browser, tmp_path: Path) -> None:
    path = write_report([hostile()], tmp_path)
    page, seen = opened(browser, path, 1600, "light")
    page.wait_for_load_state("networkidle")
    assert seen.complaints == []
    assert seen.requests == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600
    page.close()
