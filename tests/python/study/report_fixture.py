"""A plugin of pytest for the tests of pages, which share one: it takes seconds to write."""

from pathlib import Path

import pytest
from report_summaries import source

from vicinal.study.report.writing import write_report


@pytest.fixture(scope="session")
def example_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study that nobody measured."""
    return write_report([source()], tmp_path_factory.mktemp("report"))
