"""The answer to a study's question, in sentences that are made of its verdicts and nothing else."""

import math
from collections.abc import Iterator, Sequence

from vicinal.labs.report import numbers
from vicinal.labs.study.analysis.summary import Compared, Summary, Verdict
from vicinal.labs.study.file.model import Comparison

_VERDICTS = {
    Verdict.BETTER: ("is better", "are better"),
    Verdict.WORSE: ("is worse", "are worse"),
    Verdict.EQUIVALENT: ("is equivalent", "are equivalent"),
    Verdict.OPEN: ("is open", "are open"),
    Verdict.TOO_FEW: ("has too few trials", "have too few trials"),
}

_UNCLEAR = {Verdict.OPEN, Verdict.TOO_FEW}


def answers(summary: Summary) -> list[str]:
    """Sentences for each comparison of the study, and one of what the control says of them."""
    said = [
        " ".join(_about(summary, comparison)) for comparison in summary.study.design.comparisons
    ]
    if not summary.study.design.comparisons:
        said.append("This study compares nothing: it shows what was measured.")
    control = summary.control
    if control is not None and control.different:
        said.append(
            "Be careful with all of that: the control, one environment measured beside itself,"
            f" differed from itself by up to {numbers.percent(control.widest)}."
        )
    return said


def absolutes(compared: Compared) -> str:
    """`1.20 → 0.22 µs (82 % less)`."""
    return (
        f"{numbers.number(compared.base.value)} → "
        f"{numbers.with_unit(compared.test.value, compared.unit)} "
        f"({numbers.change(compared.base.value, compared.test.value)})"
    )


def where(summary: Summary, compared: Compared) -> str:
    """`MPI latency at 8 B, median`."""
    title = f"“{summary.study.workload(compared.workload).title}”"
    at = "" if compared.size is None else f" at {numbers.size(compared.size)}"
    return f"{title}{at}, {compared.statistic}"


def _about(summary: Summary, comparison: Comparison) -> Iterator[str]:
    study = summary.study
    test = f"“{study.environment(comparison.test).title}”"
    base = f"“{study.environment(comparison.base).title}”"
    found = [each for each in summary.compared if each.comparison == comparison]
    if not found:
        missing = [
            f"{name}: {study.unavailable[name]}"
            for name in (comparison.base, comparison.test)
            if name in study.unavailable
        ]
        reason = f" ({'; '.join(missing)})" if missing else ""
        yield f"{test} was not compared with {base}: there are no values of both{reason}."
        return
    counts = {
        verdict: sum(each.verdict == verdict for each in found)
        for verdict in Verdict
        if any(each.verdict == verdict for each in found)
    }
    words = [
        f"{'all' if count == len(found) > 1 else count} {_VERDICTS[verdict][count > 1]}"
        + (f" within ±{numbers.percent(study.design.margin)}" * (verdict == Verdict.EQUIVALENT))
        for verdict, count in counts.items()
    ]
    noun = "comparison" if len(found) == 1 else "comparisons"
    yield f"{test} beside {base}, in {len(found)} {noun}: {_listed(words)}."
    yield from _extremes(summary, found)


def _extremes(summary: Summary, found: Sequence[Compared]) -> Iterator[str]:
    """Where it gains most and where it costs most: of what was established, with absolutes."""
    best = [each for each in found if each.verdict == Verdict.BETTER]
    worst = [each for each in found if each.verdict == Verdict.WORSE]
    if best:
        most = max(best, key=lambda each: _performance(each))
        yield f"It gains most in {where(summary, most)}: {absolutes(most)}."
    if worst:
        least = min(worst, key=lambda each: _performance(each))
        yield f"It costs most in {where(summary, least)}: {absolutes(least)}."
    unclear = [each for each in found if each.verdict in _UNCLEAR and each.efficiency > 0]
    if unclear and not best and not worst:
        most = max(unclear, key=lambda each: abs(math.log(each.efficiency)))
        yield f"Seen, but not established: in {where(summary, most)} {absolutes(most)}."


def _performance(compared: Compared) -> float:
    """Half the time counts as much as twice the rate."""
    return compared.efficiency


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
