"""Communication and computation: where an application's time goes, and which of both changed."""

from dataclasses import asdict, dataclass

import numpy as np

from vicinal.labs.statistics.describe import mean_estimate
from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.ratio import mean_ratio_estimate
from vicinal.labs.statistics.samples import Floats, Values, as_pairs


@dataclass(frozen=True)
class Split:
    """Mean times of the trials, in their own unit: means, because parts of them add up."""

    total: Estimate
    communication: Estimate
    computation: Estimate
    """What of the total is no communication."""
    share: float
    """Communication's part of the total, 0 to 1: a ratio of means."""

    to_dict = asdict


@dataclass(frozen=True)
class SplitChange:
    """One side's split against another's."""

    ours: Split
    theirs: Split
    total: Estimate
    communication: Estimate | None
    computation: Estimate | None
    """Ratios of means, ours / theirs; None where theirs had no such time."""
    saved: float
    """How much less of the total ours takes, in the values' unit; negative if it takes more."""
    saved_by_communication: float
    """How much of that is communication's; the rest is computation's."""

    to_dict = asdict


def split(total: Values, communication: Values, confidence: float = CONFIDENCE) -> Split:
    """The split of trials, of which each has its total time and its time in communication.

    Raises ValueError if they make no pairs or a part is not between zero and its total.
    """
    whole, part = _checked(total, communication)
    return Split(
        total=mean_estimate(whole, confidence),
        communication=mean_estimate(part, confidence),
        computation=mean_estimate(whole - part, confidence),
        share=float(part.mean() / whole.mean()),
    )


def compare_splits(
    ours: tuple[Values, Values], theirs: tuple[Values, Values], confidence: float = CONFIDENCE
) -> SplitChange:
    """Two splits, each of total and communication, of which trial i ran in block i.

    Raises ValueError as `split` does, and if the sides make no pairs.
    """
    our_total, our_part = _checked(*ours)
    their_total, their_part = _checked(*theirs)

    def ratio(left: Floats, right: Floats) -> Estimate | None:
        if (right <= 0).all():
            return None
        return mean_ratio_estimate(left, right, confidence=confidence)

    return SplitChange(
        ours=split(*ours, confidence),
        theirs=split(*theirs, confidence),
        total=mean_ratio_estimate(our_total, their_total, confidence=confidence),
        communication=ratio(our_part, their_part),
        computation=ratio(our_total - our_part, their_total - their_part),
        saved=float(their_total.mean() - our_total.mean()),
        saved_by_communication=float(their_part.mean() - our_part.mean()),
    )


def _checked(total: Values, communication: Values) -> tuple[Floats, Floats]:
    whole, part = as_pairs(total, communication)
    if not ((part >= 0) & (part <= whole) & (whole > 0)).all():
        position = int(np.flatnonzero(~((part >= 0) & (part <= whole) & (whole > 0)))[0])
        raise ValueError(
            f"trial {position} has {part[position]:g} of {whole[position]:g} in communication"
        )
    return whole, part
