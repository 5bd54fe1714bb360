"""Finalists against the present setting on fresh trials: the only source of a search's claims.

Halving chose its finalists for low figures, and some of these were luck. So those figures do not
count here. Each finalist is measured again beside the present setting, in blocks in random order. A
difference is claimed by Wilcoxon's signed-rank test, as in a study, with Holm's correction over all
finalists, objectives and phases.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.signed_rank import signed_rank, signed_rank_pairs
from vicinal.labs.tune.search.blocks import Blocks
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point
from vicinal.labs.tune.search.trial import Stage, Trial

Block = Mapping[Point, Trial]
"""The trials of one block; none failed."""


class Verdict(StrEnum):
    """The result of comparing a setting with the present one, by one objective."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "not shown to differ"


@dataclass(frozen=True)
class Compared:
    """A finalist compared with the present setting, by one objective in one phase."""

    phase: str
    point: Point
    objective: Objective
    blocks: int
    ours: Estimate
    """The median of the finalist's trials, in the objective's unit."""
    present: Estimate
    ratio: Estimate
    """Finalist / present (Hodges and Lehmann), with the interval of the uncorrected test."""
    p_value: float
    adjusted: float
    """Corrected by Holm over the whole family."""
    verdict: Verdict

    to_dict = asdict

    @property
    def gain(self) -> float:
        """The improvement as a part of the present value: 0.2 means 20 % less time, or 20 %
        more rate.
        """
        ratio = self.ratio.value
        return 1 - ratio if self.objective.lower_is_better else ratio - 1


@dataclass(frozen=True)
class Confirmation:
    """The result of the confirmation."""

    alpha: float
    family: int
    """Number of comparisons in the correction."""
    needed: int
    """Fewest blocks for any claim."""
    blocks: Mapping[str, tuple[Block, ...]]
    """Blocks without failures, by phase."""
    compared: tuple[Compared, ...]
    """Comparisons; phases with fewer blocks than `needed` have none."""
    failed: Mapping[Point, str]
    """Finalists that failed here, with the errors."""


def blocks_needed(comparisons: int, alpha: float) -> int:
    """The fewest blocks with which a family of `comparisons` can claim anything."""
    return signed_rank_pairs(alpha / max(comparisons, 1))


def confirm(
    blocks: Blocks,
    phases: Sequence[str],
    finalists: Sequence[Point],
    *,
    wanted: int,
    alpha: float,
) -> Confirmation:
    """Measure `wanted` fresh blocks of each phase, or as many as the budget allows, and compare."""
    failed: dict[Point, str] = {}
    done: dict[str, list[Block]] = {phase: [] for phase in phases}
    members = list(finalists)
    family = len(finalists) * sum(len(blocks.objectives[phase]) for phase in phases)
    needed = blocks_needed(family, alpha)
    wanted = max(wanted, needed)
    while members and min(map(len, done.values())) < wanted:
        if blocks.left() < (len(members) + 1) * len(phases):
            break
        for phase in phases:
            found = blocks.run(phase, Stage.CONFIRMING, members)
            if found[blocks.space.present].failed:
                continue  # the workload failed for the present setting too: no finalist is to blame
            for point in [point for point in members if found[point].failed]:
                members.remove(point)
                failed[point] = found.pop(point).error or ""
            done[phase].append(found)
    return Confirmation(
        alpha,
        family,
        needed,
        {phase: tuple(each) for phase, each in done.items()},
        tuple(_compare(blocks, done, members, needed, alpha)),
        failed,
    )


def _compare(
    blocks: Blocks,
    done: Mapping[str, Sequence[Block]],
    members: Sequence[Point],
    needed: int,
    alpha: float,
) -> Iterator[Compared]:
    present = blocks.space.present

    def values(phase: str, point: Point, objective: Objective) -> list[float]:
        return [block[point].values[objective] for block in done[phase]]

    cells = [
        (phase, point, objective)
        for phase in done
        if len(done[phase]) >= needed
        for point in members
        for objective in blocks.objectives[phase]
    ]
    tests = [
        signed_rank(values(*cell), values(cell[0], present, cell[2]), confidence=1 - alpha)
        for cell in cells
    ]
    family = correct({str(at): test.p_value for at, test in enumerate(tests)}, alpha=alpha)
    for cell, test, claim in zip(cells, tests, family.claims.values(), strict=True):
        phase, point, objective = cell
        verdict = Verdict.UNDECIDED
        if claim.claimed:
            lower = test.shift.value < 1
            verdict = Verdict.BETTER if lower == objective.lower_is_better else Verdict.WORSE
        yield Compared(
            phase,
            point,
            objective,
            len(done[phase]),
            median_estimate(values(*cell)),
            median_estimate(values(phase, present, objective)),
            test.shift,
            test.p_value,
            claim.adjusted,
            verdict,
        )
