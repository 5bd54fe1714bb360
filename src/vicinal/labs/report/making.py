"""From results' folders to their report."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.labs.report.content import Source
from vicinal.labs.report.tuned import Searched
from vicinal.labs.report.writing import check_same_study, write_report
from vicinal.labs.study.analysis.as_json import UNITS, summary_to_json
from vicinal.labs.study.analysis.summarise import summarise
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.result.writing import ResultWriter


@dataclass(frozen=True)
class Made:
    """A report that was written."""

    page: Path
    warnings: tuple[str, ...]
    """What its readers should know first, as sentences without a full stop."""


def make_report(folders: Sequence[Path], output: Path, searches: Sequence[Searched] = ()) -> Made:
    """Summarise each result, keep the summary in its folder, and write the report of all.

    `searches` are the tuner's, to be shown beside them.

    Where somebody else writes to a result, or this user may not, it is read only. Raises
    VicinalError where a folder is no result, the results are of different studies, or nothing can
    be written to `output`.
    """
    check_same_study([open_result(folder).manifest["study"]["name"] for folder in folders])
    names = short_names(folders)
    sources = [_summarised(folder, name) for folder, name in zip(folders, names, strict=True)]
    warnings = [each for source in sources for each in source.summary.warnings]
    return Made(write_report(sources, output, searches), tuple(dict.fromkeys(warnings)))


def _summarised(folder: Path, name: str) -> Source:
    writer, result = _opened(folder)
    with writer or nullcontext():
        summary = summarise(result)
        if writer is not None:
            writer.write_summary(summary_to_json(summary), UNITS)
    return Source(summary, result.manifest, name)


def _opened(folder: Path) -> tuple[ResultWriter | None, Result]:
    try:
        return ResultWriter.resume(folder)
    except VicinalError:
        return None, open_result(folder)


def short_names(folders: Sequence[Path]) -> list[str]:
    """As short as tells them apart."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]
