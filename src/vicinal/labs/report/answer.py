"""The answer to a study's question, in plain sentences.

Each sentence states what a comparison's verdict allows: a difference with both figures and its
interval, equivalence within the margin, or that no difference was found.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vicinal.labs.report import numbers
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.study.analysis.summary import Cell, Compared, Summary, Verdict
from vicinal.labs.study.file.model import Comparison, Quantity, Statistic, Study, Workload

_COUNTED = {
    Verdict.BETTER: ("{} is better", "{} are better"),
    Verdict.WORSE: ("{} is worse", "{} are worse"),
    Verdict.EQUIVALENT: ("{} is equivalent", "{} are equivalent"),
    Verdict.OPEN: ("in {} no difference was found", "in {} no difference was found"),
    Verdict.TOO_FEW: ("{} has too few trials", "{} have too few trials"),
}
_CLAIMED = (Verdict.BETTER, Verdict.WORSE)

_MOST_HEADLINES = 4
"""Workloads that get a sentence each. If there are more, only the largest gain and cost do."""

_TAILS = (Statistic.P999, Statistic.P99, Statistic.P95, Statistic.P90)
"""The furthest first."""
_POOLED_TAIL = "P99"

_ANOTHER_STORY = math.log(2)
"""A tail whose ratio differs from the median's by this factor tells another story, even if both
have the same verdict."""

_TIMES = 2.0
"""From this factor on, a change is said as a factor, and below as a percentage."""


@dataclass(frozen=True)
class Answer:
    """What a study says about one of its comparisons."""

    comparison: Comparison | None
    """None if the study compares nothing."""
    title: str
    sentences: tuple[str, ...]
    emulated: bool = False


def answers(summary: Summary) -> list[Answer]:
    """An answer for each comparison of the study, those with an emulated side last."""
    if not summary.study.design.comparisons:
        said = ("This study compares nothing: it shows what was measured",)
        return [Answer(None, summary.study.title, said)]
    found = [_answer(summary, each) for each in summary.study.design.comparisons]
    return sorted(found, key=lambda each: each.emulated)


def reservation(summary: Summary) -> str:
    """What the control says about all answers; empty if it says nothing against them."""
    control = summary.control
    if control is None or not control.different:
        return ""
    return (
        "Be careful with all answers: in the control, one environment was measured twice and"
        f" differed from itself by up to {numbers.percent(control.widest)}"
    )


def _answer(summary: Summary, comparison: Comparison) -> Answer:
    study = summary.study
    test, base = (study.environment(each).title for each in (comparison.test, comparison.base))
    found = [each for each in summary.compared if each.comparison == comparison]
    emulated = not {comparison.base, comparison.test}.isdisjoint(summary.emulated)
    sentences = list(_sentences(summary, found)) if found else [_missing(study, comparison)]
    if emulated and found:
        sentences.append(
            "An emulated processor ran at least one side: these times say nothing about virtual"
            " machines on real hardware"
        )
    return Answer(comparison, f"{test} beside {base}", tuple(sentences), emulated)


def _missing(study: Study, comparison: Comparison) -> str:
    missing = [
        f"{name}: {study.unavailable[name]}"
        for name in (comparison.base, comparison.test)
        if name in study.unavailable
    ]
    reason = f" ({'; '.join(missing)})" if missing else ""
    test, base = (study.environment(each).title for each in (comparison.test, comparison.base))
    return f"“{test}” was not compared with “{base}”: no workload has values of both{reason}"


def _sentences(summary: Summary, found: Sequence[Compared]) -> Iterator[str]:
    study = summary.study
    headlines = [
        each for workload in study.workloads if (each := _headline(workload, found)) is not None
    ]
    if len(headlines) > _MOST_HEADLINES:
        headlines = []
    for index, each in enumerate(headlines):
        yield f"{_figures(study, each, named=index == 0)}: {_claim(study, each)}"
    if len(found) > len(headlines):
        yield _counts(found, study.design.margin)
    for verdict, word, pick in ((Verdict.BETTER, "gain", max), (Verdict.WORSE, "cost", min)):
        established = [each for each in found if each.verdict == verdict]
        if established:
            most = pick(established, key=_performance)
            if most not in headlines:
                figures = _figures(study, most, named=not headlines)
                yield f"The largest {word}: {figures}: {_claim(study, most)}"
    for workload in study.workloads:
        of_it = [each for each in found if each.workload == workload.name]
        yield from _tail(summary, workload, of_it)


def _headline(workload: Workload, found: Sequence[Compared]) -> Compared | None:
    """The smallest size of what costs time, and the largest size of a rate."""
    centre = _centre(workload)
    chosen = [each for each in found if each.workload == workload.name and each.statistic == centre]
    if not chosen:
        return None
    pick = min if workload.quantity.lower_is_better else max
    return pick(chosen, key=lambda each: each.size or 0)


def _centre(workload: Workload) -> Statistic:
    """The median if the study asks for it, or else the study's first statistic."""
    return Statistic.MEDIAN if Statistic.MEDIAN in workload.statistics else workload.statistics[0]


def _counts(found: Sequence[Compared], margin: float) -> str:
    words = []
    for verdict in Verdict:
        count = sum(each.verdict == verdict for each in found)
        if count:
            number = "all" if count == len(found) > 1 else str(count)
            text = _COUNTED[verdict][count > 1].format(number)
            words.append(
                text + f" within ±{numbers.percent(margin)}" * (verdict is Verdict.EQUIVALENT)
            )
    noun = "comparison" if len(found) == 1 else "comparisons"
    return f"Of {len(found)} {noun} (each workload, size and statistic), {_listed(words)}"


def _performance(compared: Compared) -> float:
    """The test's performance divided by the base's: half the time is 2, as twice the rate is."""
    ratio = (
        compared.test.value / compared.base.value
        if compared.ratio is None
        else compared.ratio.value
    )
    return 1 / ratio if compared.quantity.lower_is_better else ratio


def _figures(study: Study, compared: Compared, *, named: bool = False) -> str:
    """Both figures, the test's first. `named` says of which environments they are.

    `“Containers”: Latency at 8 B 0.95 µs (median), 7.9 µs in “their network”`.
    """
    base = f"{numbers.with_unit(compared.base.value, compared.unit)}"
    test = (
        f"{study.workload(compared.workload).title}{_at(compared.size)}"
        f" {numbers.with_unit(compared.test.value, compared.unit)} ({compared.statistic})"
    )
    if not named:
        return f"{test}, beside {base}"
    comparison = compared.comparison
    theirs = study.environment(comparison.base).title
    return f"“{study.environment(comparison.test).title}”: {test}, {base} in “{theirs}”"


def _at(size: int | None) -> str:
    return "" if size is None else f" at {numbers.size(size)}"


def _claim(study: Study, compared: Compared) -> str:
    """What the verdict allows to say, with the interval of the blocks' ratio."""
    ratio, verdict = compared.ratio, compared.verdict
    if ratio is None or verdict is Verdict.TOO_FEW:
        pairs = "1 pair" if compared.pairs == 1 else f"{compared.pairs} pairs"
        return f"too few trials for a claim ({pairs})"
    if verdict in _CLAIMED:
        return change(compared.quantity, ratio)
    margin = numbers.percent(study.design.margin)
    seen = f"the ratio is {numbers.number(ratio.value)} ({_interval(ratio, numbers.number)})"
    if verdict is Verdict.EQUIVALENT:
        return f"equivalent within ±{margin}: {seen}"
    return f"no difference was found: {seen}. Equivalence within ±{margin} was not shown either"


def change(quantity: Quantity, ratio: Estimate) -> str:
    """A ratio test/base in words: `8.33 times faster (95 % interval 8.26 to 8.77)`."""
    lower = quantity.lower_is_better
    better = (ratio.value < 1) == lower
    factor = max(ratio.value, 1 / ratio.value)
    grows = ratio.value > 1
    if factor < _TIMES:
        less, more = ("less", "more") if quantity is Quantity.TIME else ("lower", "higher")

        def percent(value: float) -> str:
            return f"{numbers.percent(abs(value - 1))} {more if value > 1 else less}"

        swapped = replace(ratio, low=ratio.high, high=ratio.low)  # the smaller change first
        found = _interval(ratio if grows else swapped, percent)
        return f"{percent(ratio.value)} {quantity} ({found})"
    ends = _interval(ratio if grows else _inverted(ratio), numbers.number)
    if lower:
        return f"{numbers.number(factor)} times {'faster' if better else 'slower'} ({ends})"
    if better:
        return f"{numbers.number(factor)} times the {quantity} ({ends})"
    return f"the {quantity} is divided by {numbers.number(factor)} ({ends})"


def _inverted(ratio: Estimate) -> Estimate:
    high = 1 / ratio.low if ratio.low > 0 else math.inf
    return Estimate(1 / ratio.value, 1 / ratio.high, high, ratio.confidence)


def _interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    if estimate.confidence <= 0:
        return "no interval"
    return (
        f"{100 * estimate.confidence:.0f}\N{NO-BREAK SPACE}% interval"
        f" {show(estimate.low)} to {show(estimate.high)}"
    )


def _tail(summary: Summary, workload: Workload, found: Sequence[Compared]) -> Iterator[str]:
    """At most one sentence: where the tail tells another story than the median."""
    centre = _centre(workload)
    if centre in _TAILS:
        return
    middles = {each.size: each for each in found if each.statistic == centre}
    tested = next((each for each in _TAILS if each in workload.statistics), None)
    if tested is None:
        yield from _pooled_tail(summary, middles)
        return
    stories = [
        (middles[each.size], each)
        for each in found
        if each.statistic == tested and each.size in middles and _differs(middles[each.size], each)
    ]
    if stories:
        middle, tail = stories[0]
        study = summary.study
        yield (
            f"{_another_story(middle, len(stories), len(middles))}: {_figures(study, tail)}:"
            f" {_claim(study, tail)}. The {middle.statistic}: {_both(middle)}:"
            f" {_claim(study, middle)}"
        )


def _another_story(middle: Compared, stories: int, sizes: int) -> str:
    where = f", at {stories} of {sizes} sizes" if sizes > 1 else ""
    return f"The tail tells another story than the {middle.statistic}{where}"


def _both(compared: Compared) -> str:
    return (
        f"{numbers.with_unit(compared.test.value, compared.unit)}, beside"
        f" {numbers.with_unit(compared.base.value, compared.unit)}"
    )


def _differs(middle: Compared, tail: Compared) -> bool:
    """Whether the tail has another verdict, or a ratio that is clearly another."""
    if Verdict.TOO_FEW in (middle.verdict, tail.verdict):
        return False
    if middle.verdict != tail.verdict:
        return True
    if middle.ratio is None or tail.ratio is None or middle.verdict not in _CLAIMED:
        return False
    return _apart(middle.ratio, tail.ratio)


def _apart(one: Estimate, other: Estimate) -> bool:
    """Whether two ratios differ by a factor of two, and their intervals do not overlap."""
    if min(one.value, other.value) <= 0:
        return False
    disjoint = one.high < other.low or other.high < one.low
    return disjoint and abs(math.log(one.value / other.value)) >= _ANOTHER_STORY


def _pooled_tail(summary: Summary, middles: Mapping[int | None, Compared]) -> Iterator[str]:
    """The same of all samples together, where the study compares no tails. No test is made."""
    stories = []
    for middle in middles.values():
        base, test = (
            _quantile(summary.cells, middle, name)
            for name in (middle.comparison.base, middle.comparison.test)
        )
        if base is None or test is None or middle.ratio is None or middle.verdict not in _CLAIMED:
            continue
        if _apart(middle.ratio, _quotient(test, base)):
            stories.append((middle, base, test))
    if stories:
        middle, base, test = stories[0]
        study = summary.study
        yield (
            f"{_another_story(middle, len(stories), len(middles))}:"
            f" {study.workload(middle.workload).title}{_at(middle.size)}"
            f" {numbers.with_unit(test.value, middle.unit)} ({_POOLED_TAIL} of all samples),"
            f" beside {numbers.with_unit(base.value, middle.unit)}. The {middle.statistic}:"
            f" {_both(middle)}: {_claim(study, middle)}. This study did not test the tail"
        )


def _quantile(cells: Sequence[Cell], of: Compared, environment: str) -> Estimate | None:
    for cell in cells:
        if (cell.environment, cell.workload, cell.size) == (environment, of.workload, of.size):
            return None if cell.pooled is None else cell.pooled.percentiles.get(_POOLED_TAIL)
    return None


def _quotient(test: Estimate, base: Estimate) -> Estimate:
    """The widest quotient of two intervals."""
    if min(base.low, base.value) <= 0:
        return Estimate(0, 0, math.inf, 0)
    confidence = min(test.confidence, base.confidence)
    return Estimate(test.value / base.value, test.low / base.high, test.high / base.low, confidence)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
