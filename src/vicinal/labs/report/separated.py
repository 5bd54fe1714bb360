"""The report's CSV files: tidy, with one value a line and the unit in the heading."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vicinal.labs.report.content import Source
from vicinal.labs.report.names import slug
from vicinal.labs.report.tables import part_changes, with_splits
from vicinal.labs.report.tuned import TUNED_HEADINGS, Searched, tuned_rows
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.result.whole import write_whole

Row = Sequence[object]
_CELL = ("result", "environment", "workload", "size_bytes")
_SYMBOLS = str.maketrans({"µ": "u", "/": "_per_", " ": "_", "%": "percent"})


def write_csv(
    sources: Sequence[Source], folder: Path, searches: Sequence[Searched] = ()
) -> list[Path]:
    """Write a file for each kind of table, and for each quantity and unit. Returns their paths."""
    written = []
    for name, headings, rows in (*_files(sources), *_searched(searches)):
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(headings)
        writer.writerows(rows)
        written.append(folder / f"{name}.csv")
        write_whole(written[-1], text.getvalue().encode())
    return written


def unit_name(unit: str) -> str:
    """A unit in a heading: us, MB_per_s."""
    return unit.translate(_SYMBOLS)


def _files(sources: Sequence[Source]) -> Iterator[tuple[str, Row, Iterable[Row]]]:
    kinds = {
        (cell.quantity, cell.unit): None for source in sources for cell in source.summary.cells
    }
    several = len({quantity for quantity, _ in kinds}) < len(kinds)
    for quantity, unit in kinds:
        in_unit = unit_name(unit)
        ending = slug(f"{quantity} {in_unit}" if several else quantity)
        yield (
            f"measured-{ending}",
            (
                *(*_CELL, "statistic", "trials"),
                *(f"{name}_{in_unit}" for name in ("value", "low", "high")),
                "confidence",
            ),
            _measured(sources, unit, quantity),
        )
        yield (
            f"trials-{ending}",
            (*_CELL, "statistic", "index", f"value_{in_unit}"),
            _trials(sources, unit, quantity),
        )
        yield (
            f"quantiles-{ending}",
            (*_CELL, "part", f"value_{in_unit}"),
            _quantiles(sources, unit, quantity),
        )
        yield (
            f"compared-{ending}",
            (
                *("result", "base", "test", "workload", "size_bytes", "statistic"),
                *(
                    f"{side}_{name}{in_unit}"
                    for side in ("base", "test")
                    for name in ("", "low_", "high_")
                ),
                *("ratio", "ratio_low", "ratio_high", "ratio_confidence", "gain", "efficiency"),
                *("pairs", "p_t", "p_signed_rank", "p_corrected", "verdict"),
            ),
            _compared(sources, unit, quantity),
        )
    if any(cell.parts for source in sources for cell in source.summary.cells):
        yield (
            "parts",
            (*_CELL, "part", "value_s", "low_s", "high_s", "confidence"),
            _parts(sources),
        )
    if any(each.split for source in sources for each in source.summary.compared):
        yield (
            "compared-parts",
            (
                *("result", "base", "test", "workload", "size_bytes", "part"),
                *(f"{side}_{name}s" for side in ("base", "test") for name in ("", "low_", "high_")),
                *("ratio", "ratio_low", "ratio_high", "ratio_confidence", "saved_s"),
                *("base_share", "test_share"),
            ),
            _compared_parts(sources),
        )
    if any(source.summary.published for source in sources):
        yield (
            "published",
            (
                *("result", "source", "workload", "environment", "base", "test", "size_bytes"),
                *("statistic", "unit", "published", "note", "measured", "low", "high"),
                *("confidence", "adapted", "why_not"),
            ),
            _published(sources),
        )


def _searched(searches: Sequence[Searched]) -> Iterator[tuple[str, Row, Iterable[Row]]]:
    if searches:
        yield "tuned", TUNED_HEADINGS, tuned_rows(searches)


def _measured(sources: Sequence[Source], unit: str, quantity: str) -> Iterator[Row]:
    for source in sources:
        for cell in source.summary.cells:
            if (cell.quantity, cell.unit) == (quantity, unit):
                head = (source.name, cell.environment, cell.workload, cell.size)
                for statistic, estimate in cell.across.items():
                    yield (*head, str(statistic), cell.trials, *_estimate(estimate))


def _trials(sources: Sequence[Source], unit: str, quantity: str) -> Iterator[Row]:
    for source in sources:
        for cell in source.summary.cells:
            if (cell.quantity, cell.unit) == (quantity, unit):
                head = (source.name, cell.environment, cell.workload, cell.size)
                for statistic, values in cell.values.items():
                    for index, value in enumerate(values):
                        yield (*head, str(statistic), index, value)


def _quantiles(sources: Sequence[Source], unit: str, quantity: str) -> Iterator[Row]:
    for source in sources:
        for cell in source.summary.cells:
            if (cell.quantity, cell.unit) == (quantity, unit):
                head = (source.name, cell.environment, cell.workload, cell.size)
                for share, value in cell.tail:
                    yield (*head, share, value)


def _compared(sources: Sequence[Source], unit: str, quantity: str) -> Iterator[Row]:
    for source in sources:
        for each in source.summary.compared:
            if (each.quantity, each.unit) == (quantity, unit):
                sides = (each.base, each.test)
                yield (
                    *(source.name, each.comparison.base, each.comparison.test, each.workload),
                    *(each.size, str(each.statistic)),
                    *(value for side in sides for value in _estimate(side)[:3]),
                    *(_estimate(each.ratio) if each.ratio else (None,) * 4),
                    *(each.gain, each.efficiency, each.pairs),
                    *(each.p_t, each.p_signed_rank, each.p_corrected, str(each.verdict)),
                )


def _parts(sources: Sequence[Source]) -> Iterator[Row]:
    for source in sources:
        for cell in source.summary.cells:
            head = (source.name, cell.environment, cell.workload, cell.size)
            for kind, estimate in cell.parts.items():
                yield (*head, kind, *_estimate(estimate))


def _compared_parts(sources: Sequence[Source]) -> Iterator[Row]:
    for source in sources:
        for each in with_splits(source.summary.compared):
            if each.split is None:
                continue
            for part in part_changes(each.split):
                yield (
                    *(source.name, each.comparison.base, each.comparison.test, each.workload),
                    *(each.size, part.name),
                    *(value for side in (part.base, part.test) for value in _estimate(side)[:3]),
                    *(_estimate(part.ratio) if part.ratio else (None,) * 4),
                    *(part.saved, part.base_share, part.test_share),
                )


def _published(sources: Sequence[Source]) -> Iterator[Row]:
    for source in sources:
        for each in source.summary.published:
            figure = each.published
            base, test = figure.comparison or (None, None)
            yield (
                *(source.name, figure.source, figure.workload, figure.environment, base, test),
                *(figure.size, str(figure.statistic), figure.unit, figure.value, figure.note),
                *(_estimate(each.measured) if each.measured else (None,) * 4),
                *(each.adapted, each.why_not),
            )


def _estimate(estimate: Estimate) -> tuple[float, float, float, float]:
    return estimate.value, estimate.low, estimate.high, estimate.confidence
