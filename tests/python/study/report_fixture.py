"""A pytest plugin with pages that several tests share, because they take seconds to write."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from report_summaries import small_source, source

from vicinal.labs.report.making import write_report


@pytest.fixture(scope="session")
def example_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a made-up study that nobody measured."""
    return write_report([source()], tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def report_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two results of a small study, monday and tuesday."""
    with pytest.MonkeyPatch.context() as patch:
        draw_no_png(patch)
        sources = [small_source("monday", 1), small_source("tuesday", 2)]
        return write_report(sources, tmp_path_factory.mktemp("report-of-two"))


@pytest.fixture
def no_png(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave PNG files empty, which are half of the work. The page has the plots as SVG."""
    draw_no_png(monkeypatch)


def draw_no_png(patch: pytest.MonkeyPatch) -> None:
    """Leave PNG files empty."""
    draw = Figure.savefig

    def save(figure: Figure, content: BytesIO, **options: Any) -> None:
        if options["format"] != "png":
            draw(figure, content, **options)

    patch.setattr(Figure, "savefig", save)
