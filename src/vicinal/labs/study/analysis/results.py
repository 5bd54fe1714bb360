"""Compares two results: the same cells on two dates, two machines, or two versions.

Trials of two results are not pairs. So a difference may also come from anything that slowed down
one of the days as a whole. The differences between both measurements are therefore part of the
answer, and come first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.rank_sum import least_rank_sum_p_value, rank_sum, unpaired_equivalence
from vicinal.labs.study.analysis.cautions import of_failures
from vicinal.labs.study.analysis.cells import Cells, Gathered, gather
from vicinal.labs.study.analysis.comparing import FAMILIES
from vicinal.labs.study.analysis.summary import Verdict
from vicinal.labs.study.analysis.units import convert
from vicinal.labs.study.file.json_form import study_from_json, study_to_json
from vicinal.labs.study.file.model import Design, Quantity, Statistic, Study
from vicinal.labs.study.result.reading import Result


@dataclass(frozen=True)
class Difference:
    """A difference between the circumstances of both measurements."""

    what: str
    """`versions.kernel`, `workload latency: samples`."""
    before: str
    """`-` if missing."""
    after: str


@dataclass(frozen=True)
class CellsCompared:
    """One environment, workload, size and statistic of both results, in the first result's unit."""

    environment: str
    workload: str
    size: int | None
    statistic: Statistic
    quantity: Quantity
    unit: str
    before: Estimate
    after: Estimate
    """Both are medians of the trials."""
    trials_before: int
    trials_after: int
    ratio: Estimate
    """After/before, by Hodges and Lehmann."""
    gain: float
    """How much better the second result is: for latency 1 - ratio, for bandwidth ratio - 1."""
    p_value: float
    """By the rank-sum test, uncorrected."""
    p_corrected: float
    verdict: Verdict
    """The verdict on the second result."""


@dataclass(frozen=True)
class ResultsCompared:
    """Two results: the differences of their circumstances, and each cell of both."""

    before: str
    """`before` and `after` are folders, as the user named them."""
    after: str
    created_before: str
    created_after: str
    """When they were measured, UTC."""
    differences: tuple[Difference, ...]
    cells: tuple[CellsCompared, ...]
    only_before: tuple[str, ...]
    """Cells that the other result lacks, in words."""
    only_after: tuple[str, ...]
    warnings: tuple[str, ...]


def compare_results(before: Result, after: Result) -> ResultsCompared:
    """Compare the cells that both results have, by the first result's design.

    Raises VicinalError if they have nothing in common, or if a manifest has no complete study.
    """
    studies = [study_from_json(each.manifest["study"]) for each in (before, after)]
    gathered = [gather(each, study) for each, study in zip((before, after), studies, strict=True)]
    cells = [_shown(each, study) for each, study in zip(gathered, studies, strict=True)]
    compared = tuple(_judged(list(_both(*cells)), studies[0].design))
    if not compared:
        raise VicinalError(
            f"{before.folder} and {after.folder} have no environment, workload and size in common",
            "compare results of the same study, or of studies that share some",
        )
    return ResultsCompared(
        before=str(before.folder),
        after=str(after.folder),
        created_before=before.manifest["created"],
        created_after=after.manifest["created"],
        differences=tuple(_differences(before, after, *studies)),
        cells=compared,
        only_before=tuple(_missing(cells[0], cells[1])),
        only_after=tuple(_missing(cells[1], cells[0])),
        warnings=(
            *_troubles(before, gathered[0]),
            *_troubles(after, gathered[1]),
            *_too_few(compared, studies[0].design),
        ),
    )


@dataclass(frozen=True)
class _Sides:
    """The trials of a cell in both results."""

    cell: Gathered
    statistic: Statistic
    before: list[float]
    after: list[float]


def _shown(cells: Cells, study: Study) -> dict[tuple[str, str, int | None], Gathered]:
    """The cells with values, without cells of the A/A control."""
    names = {environment.name for environment in study.environments}
    return {key: cell for key, cell in cells.items() if cell.trials and cell.environment in names}


def _both(
    before: Mapping[tuple[str, str, int | None], Gathered],
    after: Mapping[tuple[str, str, int | None], Gathered],
) -> Iterator[_Sides]:
    for key, cell in before.items():
        other = after.get(key)
        if other is None or convert(1.0, other.unit, cell.unit) is None:
            continue
        for statistic in Statistic:
            sides = [
                [
                    converted
                    for value in each.values(statistic).values()
                    if (converted := convert(value, each.unit, cell.unit)) is not None
                ]
                for each in (cell, other)
            ]
            if all(side and min(side) > 0 for side in sides):
                yield _Sides(cell, statistic, *sides)


def _judged(family: list[_Sides], design: Design) -> Iterator[CellsCompared]:
    """Comparisons of the cells, corrected for their number."""
    correction, alpha = FAMILIES[design.correction], design.alpha

    def adjusted(values: Iterable[float]) -> list[float]:
        named = {str(index): value for index, value in enumerate(values)}
        return [claim.adjusted for claim in correct(named, correction, alpha).claims.values()]

    found = [rank_sum(each.after, each.before, 1 - alpha) for each in family]
    different = adjusted(each.p_value for each in found)
    equal = adjusted(
        unpaired_equivalence(each.after, each.before, margin=design.margin, alpha=alpha).p_value
        for each in family
    )
    least = adjusted(least_rank_sum_p_value(len(each.before), len(each.after)) for each in family)
    for index, (sides, test) in enumerate(zip(family, found, strict=True)):
        quantity, ratio = sides.cell.workload.quantity, test.ratio
        gain = 1 - ratio.value if quantity.lower_is_better else ratio.value - 1
        verdict = Verdict.TOO_FEW if least[index] > alpha else Verdict.OPEN
        if different[index] <= alpha:
            verdict = Verdict.BETTER if gain > 0 else Verdict.WORSE
        if equal[index] <= alpha:
            verdict = Verdict.EQUIVALENT
        yield CellsCompared(
            environment=sides.cell.environment,
            workload=sides.cell.workload.name,
            size=sides.cell.size,
            statistic=sides.statistic,
            quantity=quantity,
            unit=sides.cell.unit,
            before=median_estimate(sides.before, 1 - alpha),
            after=median_estimate(sides.after, 1 - alpha),
            trials_before=len(sides.before),
            trials_after=len(sides.after),
            ratio=ratio,
            gain=gain,
            p_value=test.p_value,
            p_corrected=different[index],
            verdict=verdict,
        )


def _differences(before: Result, after: Result, study: Study, other: Study) -> Iterator[Difference]:
    """Differences of machine, versions and variables, then of the studies."""
    for part in ("host", "versions", "variables"):
        sides = [dict(_leaves(each.manifest[part], f"{part}.")) for each in (before, after)]
        for side in sides:
            side.pop("host.load", None)  # momentary; each trial has its own
        yield from _unequal(*sides)
    yield from _unequal(dict(_asked(study)), dict(_asked(other)))


def _asked(study: Study) -> Iterator[tuple[str, Any]]:
    """The parts of a study that determine what a cell is."""
    values = study_to_json(study)
    yield "study", values["name"]
    for kind, group in (("environment", "environments"), ("workload", "workloads")):
        for each in values[group]:
            for name, value in _leaves(each):
                if name not in ("name", "title"):
                    yield f"{kind} {each['name']}: {name}", value
    for adaptation in study.adaptations:
        yield f"adapted: {adaptation.what}", adaptation.why
    for name, why in study.unavailable.items():
        yield f"unavailable: {name}", why


def _unequal(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys((*before, *after)):
        left, right = before.get(name), after.get(name)
        if left != right:
            yield Difference(name, _shortly(left), _shortly(right))


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            for index, each in enumerate(value):
                yield from _leaves({str(index): each}, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shortly(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _missing(
    those: Mapping[tuple[str, str, int | None], Gathered],
    others: Mapping[tuple[str, str, int | None], Gathered],
) -> Iterator[str]:
    for key, cell in those.items():
        if key not in others:
            yield cell.label


def _troubles(result: Result, cells: Cells) -> Iterator[str]:
    """Trials that are damaged, missing, or failed."""
    for problem in result.problems:
        yield str(problem)
    for failed in of_failures(cells.values()):
        yield f"{result.folder}: {failed}"


def _too_few(compared: tuple[CellsCompared, ...], design: Design) -> Iterator[str]:
    few = sum(each.verdict is Verdict.TOO_FEW for each in compared)
    if few:
        yield (
            f"{few} of {len(compared)} comparisons have too few trials for any claim at "
            f"{design.alpha:g} after correction for all of them"
        )
