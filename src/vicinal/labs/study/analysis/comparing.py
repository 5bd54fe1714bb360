"""Comparisons: each question of a study, for each workload, size and statistic.

A difference is claimed by Wilcoxon's test of the blocks that have both sides, corrected for all
tests of the study; docs/decisions/0019 says why by this test.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vicinal.labs.statistics import correct as corrections
from vicinal.labs.statistics.compare import paired_t
from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.equivalence import equivalence_p_value
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.ratio import paired_ratio_estimate
from vicinal.labs.statistics.samples import Scale, differences
from vicinal.labs.statistics.signed_rank import claim_p_value, signed_rank_pairs
from vicinal.labs.statistics.split import SplitChange, compare_splits
from vicinal.labs.study.analysis.cells import Cells, Gathered
from vicinal.labs.study.analysis.looks import claiming_rule, last_look
from vicinal.labs.study.analysis.summary import Compared, Verdict
from vicinal.labs.study.file.model import Comparison, Correction, Design, Statistic, Study
from vicinal.labs.study.result.layout import COMMUNICATION_TIME, TOTAL_TIME

FAMILIES = {
    Correction.HOLM: corrections.Correction.HOLM,
    Correction.BENJAMINI_HOCHBERG: corrections.Correction.BENJAMINI_HOCHBERG,
}


@dataclass(frozen=True)
class Pairs:
    """Two cells of a question, by the blocks that have both."""

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
    """The pairs of a question; None where no block has both sides."""
    base = cells.get((comparison.base, workload, size))
    test = cells.get((comparison.test, workload, size))
    if base is None or test is None or base.unit != test.unit:
        return None
    both = sorted(base.values(statistic).keys() & test.values(statistic).keys())
    return Pairs(comparison, base, test, statistic, tuple(both)) if both else None


def compare_all(study: Study, cells: Cells) -> tuple[Compared, ...]:
    """All questions of a study that can be asked of what was measured.

    Where a value is zero there is no ratio, and nothing to compare.
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
    """What each of the pairs says, corrected for there being the others.

    Differences are one family, and equivalences another.
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
    """The same of a study that looked at its data while it ran: `watched` of its comparisons.

    The intervals decide that hold at all looks together, and there are no p values: those of a
    study without looks would be too small.
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
    """Pairs, and what they say by themselves."""

    pairs: Pairs
    ratio: Estimate | None = None
    p_t: float | None = None
    p_different: float | None = None
    p_equal: float | None = None
    p_least: float | None = None
    """Of equivalence, where all pairs speak for it: what so many can say at most."""


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
    """Both sides and their ratio, and nothing claimed yet."""
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
    """How communication and the rest of a run changed, where both sides say that of each trial."""
    try:
        return compare_splits(_times(pairs.test, pairs.blocks), _times(pairs.base, pairs.blocks))
    except (KeyError, ValueError):  # it is not said, or more than the run took
        return None


def _times(cell: Gathered, blocks: Sequence[int]) -> tuple[list[float], list[float]]:
    """Of each trial the whole time and that in communication, in s."""
    parts = [cell.trials[block].parts for block in blocks]
    return [each[TOTAL_TIME] for each in parts], [each[COMMUNICATION_TIME] for each in parts]
