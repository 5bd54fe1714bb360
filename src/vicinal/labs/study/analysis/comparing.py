"""Comparisons: each question of a study, for each workload, size and statistic.

Wilcoxon's test of the blocks that have both sides, corrected for all tests of the study, decides
whether a difference is claimed; docs/decisions/0019 says why this test.

The A/A control, one environment measured twice in each block, is compared with itself in the same
way. `rule_of` says when a study that may stop early looks at its data, and `claiming_rule` what it
may claim then. vicinal.labs.statistics.stopping says why these intervals hold for any reason to
stop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vicinal.labs.statistics import correct as corrections
from vicinal.labs.statistics.compare import paired_t
from vicinal.labs.statistics.control import CONTROL_ALPHA, Control, control
from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.equivalence import equivalence_p_value
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.ratio import paired_ratio, paired_ratio_estimate
from vicinal.labs.statistics.samples import Scale, TooFewTrialsError, differences
from vicinal.labs.statistics.signed_rank import claim_p_value, signed_rank_pairs
from vicinal.labs.statistics.split import SplitChange, compare_splits
from vicinal.labs.statistics.stopping import Look, Rule, even_rule, watch
from vicinal.labs.study.analysis.cells import Cells, Gathered
from vicinal.labs.study.analysis.summary import Compared, ControlFound, Verdict
from vicinal.labs.study.file.model import (
    Comparison,
    Correction,
    Design,
    Statistic,
    Study,
    control_name,
)
from vicinal.labs.study.result.layout import COMMUNICATION_TIME, TOTAL_TIME

FAMILIES = {
    Correction.HOLM: corrections.Correction.HOLM,
    Correction.BENJAMINI_HOCHBERG: corrections.Correction.BENJAMINI_HOCHBERG,
}


@dataclass(frozen=True)
class Pairs:
    """Two cells of a question, in the blocks that have both."""

    comparison: Comparison
    base: Gathered
    test: Gathered
    statistic: Statistic
    blocks: tuple[int, ...]

    @property
    def sides(self) -> tuple[list[float], list[float]]:
        """Values of the base and of the test; element i of both is of block i."""
        base, test = self.base.values(self.statistic), self.test.values(self.statistic)
        return [base[block] for block in self.blocks], [test[block] for block in self.blocks]


def pair(
    cells: Cells, comparison: Comparison, workload: str, size: int | None, statistic: Statistic
) -> Pairs | None:
    """The pairs of a question; None if no block has both sides."""
    base = cells.get((comparison.base, workload, size))
    test = cells.get((comparison.test, workload, size))
    if base is None or test is None or base.unit != test.unit:
        return None
    both = sorted(base.values(statistic).keys() & test.values(statistic).keys())
    return Pairs(comparison, base, test, statistic, tuple(both)) if both else None


def compare_all(study: Study, cells: Cells) -> tuple[Compared, ...]:
    """All questions of a study for which there are measurements.

    A value of zero has no ratio, so it is not compared.
    """
    family = list(_all_pairs(study, cells))
    if study.design.most_trials is None:
        return judge(family, study.design)
    watched = {(workload, size) for (_, workload, size), cell in cells.items() if cell.trials}
    return judge_looks(family, study.design, len(study.design.comparisons) * len(watched))


def _all_pairs(study: Study, cells: Cells) -> Iterator[Pairs]:
    for comparison in study.design.comparisons:
        for workload in study.workloads:
            sizes = sorted(
                {size for environment, name, size in cells if name == workload.name},
                key=lambda size: -1 if size is None else size,
            )
            for size in sizes:
                for statistic in workload.statistics:
                    found = pair(cells, comparison, workload.name, size, statistic)
                    if found is not None and min(min(side) for side in found.sides) > 0:
                        yield found


def judge(family: Sequence[Pairs], design: Design) -> tuple[Compared, ...]:
    """The comparison of each of the pairs, corrected for the number of pairs.

    Tests of difference are one family, and tests of equivalence another.
    """
    tested = [_test(pairs, design) for pairs in family]
    different = _adjusted({i: each.p_different for i, each in enumerate(tested)}, design)
    equal = _adjusted({i: each.p_equal for i, each in enumerate(tested)}, design)
    possible = _adjusted({i: each.p_least for i, each in enumerate(tested)}, design)
    found = []
    for index, each in enumerate(tested):
        compared = _described(each.pairs, design, each.ratio)
        verdict = _verdict(
            compared.gain,
            design.alpha,
            different.get(index),
            equal.get(index),
            possible.get(index, 1.0),
        )
        found.append(
            replace(
                compared,
                p_t=each.p_t,
                p_signed_rank=each.p_different,
                p_corrected=different.get(index),
                verdict=verdict,
            )
        )
    return tuple(found)


def judge_looks(family: Sequence[Pairs], design: Design, watched: int) -> tuple[Compared, ...]:
    """The comparisons of a study that looked at its data while it ran: `watched` of its
    comparisons.

    Intervals that hold at all looks together decide. There are no p values, because p values that
    ignore the looks would be too small.
    """
    rule = claiming_rule(design, watched, len(family))
    found = []
    for pairs in family:
        base, test = pairs.sides
        look = last_look(rule, test, base)
        compared = _described(pairs, design, look.ratio if look else None)
        found.append(replace(compared, verdict=_of_look(compared, design.margin)))
    return tuple(found)


def _of_look(compared: Compared, margin: float) -> Verdict:
    ratio = compared.ratio
    if ratio is None:
        return Verdict.TOO_FEW
    if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
        return Verdict.EQUIVALENT
    if ratio.holds(1):
        return Verdict.OPEN
    return Verdict.BETTER if compared.gain > 0 else Verdict.WORSE


@dataclass(frozen=True)
class _Tested:
    """Pairs, and the results of their own tests."""

    pairs: Pairs
    ratio: Estimate | None = None
    p_t: float | None = None
    p_different: float | None = None
    p_equal: float | None = None
    p_least: float | None = None
    """The smallest p value of equivalence that this number of pairs can reach."""


def _test(pairs: Pairs, design: Design) -> _Tested:
    base, test = pairs.sides
    count, confidence = len(base), 1 - design.alpha
    p_t = paired_t(test, base, Scale.RATIO).p_value if count > 1 else None
    if count < signed_rank_pairs(design.alpha):
        return _Tested(pairs, p_t=p_t)
    return _Tested(
        pairs,
        ratio=paired_ratio_estimate(test, base, confidence=confidence),
        p_t=p_t,
        p_different=claim_p_value(differences(test, base, Scale.RATIO)),
        p_equal=equivalence_p_value(test, base, margin=design.margin, alpha=design.alpha),
        p_least=1 / 2**count,
    )


def _adjusted(p_values: Mapping[int, float | None], design: Design) -> dict[int, float]:
    known = {str(index): value for index, value in p_values.items() if value is not None}
    family = correct(known, FAMILIES[design.correction], design.alpha)
    return {int(index): claim.adjusted for index, claim in family.claims.items()}


def _described(pairs: Pairs, design: Design, ratio: Estimate | None) -> Compared:
    """Both sides and their ratio, without a claim."""
    base, test = (median_estimate(side, 1 - design.alpha) for side in pairs.sides)
    quantity = pairs.base.workload.quantity
    quotient = test.value / base.value
    shown = ratio.value if ratio else quotient
    lower_is_better = quantity.lower_is_better
    return Compared(
        comparison=pairs.comparison,
        workload=pairs.base.workload.name,
        size=pairs.base.size,
        statistic=pairs.statistic,
        quantity=quantity,
        unit=pairs.base.unit,
        base=base,
        test=test,
        ratio=ratio,
        gain=1 - shown if lower_is_better else shown - 1,
        efficiency=1 / quotient if lower_is_better else quotient,
        pairs=len(pairs.blocks),
        p_t=None,
        p_signed_rank=None,
        p_corrected=None,
        verdict=Verdict.OPEN,
        split=_split(pairs),
    )


def _verdict(
    gain: float, alpha: float, different: float | None, equal: float | None, possible: float
) -> Verdict:
    if equal is not None and equal <= alpha:
        return Verdict.EQUIVALENT
    if different is not None and different <= alpha:
        return Verdict.BETTER if gain > 0 else Verdict.WORSE
    return Verdict.TOO_FEW if possible > alpha else Verdict.OPEN


def _split(pairs: Pairs) -> SplitChange | None:
    """The changes of communication and of the other time, if both sides report them for
    each trial.
    """
    try:
        return compare_splits(_times(pairs.test, pairs.blocks), _times(pairs.base, pairs.blocks))
    except (KeyError, ValueError):  # not reported, or longer than the run
        return None


def _times(cell: Gathered, blocks: Sequence[int]) -> tuple[list[float], list[float]]:
    """Total time and time in communication of each trial, in s."""
    parts = [cell.trials[block].parts for block in blocks]
    return [each[TOTAL_TIME] for each in parts], [each[COMMUNICATION_TIME] for each in parts]


def rule_of(design: Design, comparisons: int) -> Rule | None:
    """When the study looks at its data; None if so few blocks can decide nothing before the last
    one.
    """
    try:
        rule = even_rule(
            max(design.trials, design.most_trials or 0),
            alpha=design.alpha,
            comparisons=max(1, comparisons),
            margin=design.margin,
            precision=design.precision,
        )
    except TooFewTrialsError:
        return None
    # The design has at least this many blocks, so no look comes earlier.
    return replace(rule, looks=tuple(look for look in rule.looks if look >= design.trials))


def claiming_rule(design: Design, watched: int, tests: int) -> Rule | None:
    """The same looks for all tests of the final analysis, which share alpha.

    While blocks run, fewer comparisons are `watched`: the first statistic of each workload. Looks
    that are too early for the number of tests are left out. None if all looks are.
    """
    rule = rule_of(design, watched)
    looks = rule.looks if rule else ()
    while looks:
        try:
            return Rule(looks, design.alpha, max(1, tests), design.margin)
        except TooFewTrialsError:
            looks = looks[1:]
    return None


def last_look(rule: Rule | None, ours: Sequence[float], theirs: Sequence[float]) -> Look | None:
    """The look that decided, otherwise the latest look; None before the first look."""
    return watch(rule, ours, theirs) if rule is not None else None


def judge_control(study: Study, cells: Cells) -> ControlFound | None:
    """What the control showed, for the first statistic of each workload and size.

    None without a control. If nothing differs, a correction only has to limit the chance of any
    false finding, and Benjamini and Hochberg's correction limits it as Holm's does.
    """
    name = controlled(study, cells)
    if name is None:
        return None
    question = Comparison(control_name(name), name)
    found: dict[str, Control] = {}
    widest, untested = 0.0, 0
    for environment, workload, size in cells:
        if environment != name:
            continue
        statistic = study.workload(workload).statistics[0]
        pairs = pair(cells, question, workload, size, statistic)
        if pairs is None or min(min(side) for side in pairs.sides) <= 0:
            continue
        second, first = pairs.sides
        widest = max(widest, abs(paired_ratio(first, second) - 1))
        judged = _judge(pairs)
        if judged is None:
            untested += 1
        else:
            found[pairs.test.label] = judged
    if not found and not untested:
        return None
    family = correct(
        {label: _p_value(each) for label, each in found.items()},
        corrections.Correction.BENJAMINI_HOCHBERG,
        CONTROL_ALPHA,
    )
    different = tuple(
        f"{label}: {'; '.join(found[label].warnings)}"
        for label, claim in family.claims.items()
        if claim.claimed
    )
    return ControlFound(name, len(found), different, widest, untested)


def controlled(study: Study, cells: Cells) -> str | None:
    """The environment that was measured twice; None if none was."""
    return next(
        (
            environment.name
            for environment in study.environments
            if any(name == control_name(environment.name) for name, _, _ in cells)
        ),
        None,
    )


def _judge(pairs: Pairs) -> Control | None:
    """Judge with the order in which both ran, or without it if there are too few blocks."""
    second, first = pairs.sides
    first_ran_first = [
        pairs.test.trials[block].number < pairs.base.trials[block].number for block in pairs.blocks
    ]
    for order in (first_ran_first, None):
        try:
            return control(first, second, first_ran_first=order)
        except TooFewTrialsError:
            continue
    return None


def _p_value(judged: Control) -> float:
    """The smaller p value of both tests; each is corrected for the other."""
    orders = [] if judged.order_p_value is None else [judged.order_p_value]
    return min([judged.labels_p_value, *orders])
