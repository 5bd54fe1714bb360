"""An application's time in communication and computation, and which of both changed."""

from dataclasses import asdict, dataclass

import numpy as np

from vicinal.labs.statistics.describe import mean_estimate
from vicinal.labs.statistics.estimate import CONFIDENCE, Estimate
from vicinal.labs.statistics.ratio import mean_ratio_estimate
from vicinal.labs.statistics.samples import Floats, Values, as_pairs


@dataclass(frozen=True)
class Split:
    """Mean times of the trials, in their own unit. Parts of means add up."""

    total: Estimate
    communication: Estimate
    computation: Estimate
    """The total without communication."""
    share: float
    """Fraction of the total in communication, 0 to 1, as a ratio of means."""

    to_dict = asdict


@dataclass(frozen=True)
class SplitChange:
    """The split of one side compared with the other's."""

    ours: Split
    theirs: Split
    total: Estimate
    communication: Estimate | None
    computation: Estimate | None
    """Ratios of means, ours / theirs. None if theirs had no such time."""
    saved: float
    """Total of theirs - total of ours, in the values' unit. Negative if ours takes longer."""
    saved_by_communication: float
    """The part of `saved` in communication. The rest is in computation."""

    to_dict = asdict


def split(total: Values, communication: Values, confidence: float = CONFIDENCE) -> Split:
    """The split of trials. Each trial has a total time and a time in communication.

    Raises ValueError if the lengths differ, or if a part is not between zero and its total.
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
    """Compare two splits, each of (total, communication). Trial i of both ran in block i.

    Raises the errors of `split`, and ValueError if the sides make no pairs.
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
