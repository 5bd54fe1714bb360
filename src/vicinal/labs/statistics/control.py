"""A/A control: one environment measured twice, as if it were two environments.

The two sides are the same, so a difference between them comes from the machine or from the method.
Each block of a study therefore has one environment twice. A report shows the control before all
other figures: whether the machine differs from itself, and which differences it could hide.

The control is tested at 0.01 and not at 0.05. Its warning precedes every other sentence of a
report. A warning in one of twenty studies on faultless machines would teach people to skip it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.statistics.correct import holm
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.samples import Floats, Values, as_pairs
from vicinal.labs.statistics.signed_rank import SignedRank, signed_rank, signed_rank_pairs

CONTROL_ALPHA = 0.01


@dataclass(frozen=True)
class Control:
    """What the control shows about the machine."""

    trials: int
    ratio: Estimate
    """First / second of a block, Hodges and Lehmann's estimate with its 95 % interval."""
    floor: float
    """The end of the interval that is further from 1, as a relative difference: 0.02 is 2 %.

    Smaller differences cannot be told from the machine's own differences.
    """
    labels_p_value: float
    """The p-value of first against second side, corrected for the test of the order."""
    order_p_value: float | None
    """The p-value of earlier against later in a block. None if the order is not known."""
    warnings: tuple[str, ...]
    """Phrases for people. Empty if no difference was found."""

    to_dict = asdict

    @property
    def differs(self) -> bool:
        """Whether the machine differs from itself."""
        return bool(self.warnings)


def control(
    first: Values,
    second: Values,
    *,
    first_ran_first: Sequence[bool] | None = None,
    alpha: float = CONTROL_ALPHA,
) -> Control:
    """Judge a machine by two sides of the same environment.

    `first_ran_first` says for each block whether the first side ran earlier. If it is given, the
    order is tested too. Raises TooFewTrialsError if no outcome of this number of trials could be
    significant, and ValueError if a value is not above zero or the sides make no pairs.
    """
    tests = 1 if first_ran_first is None else 2
    method = f"an A/A control at {alpha:g}"
    one, other = as_pairs(first, second, method=method, needed=signed_rank_pairs(alpha / tests))
    labels = signed_rank(one, other)
    p_values = [labels.p_value]
    order = None
    if first_ran_first is not None:
        order = _earlier_against_later(one, other, np.asarray(first_ran_first, dtype=bool))
        p_values.append(order.p_value)
    adjusted = [float(value) for value in holm(p_values)]
    warnings = []
    if adjusted[0] <= alpha:
        warnings.append(
            f"the same environment measured twice differs from itself by {_percent(labels.shift)}"
        )
    if order and adjusted[1] <= alpha:
        warnings.append(
            "what runs first in its block differs from what runs after it by "
            f"{_percent(order.shift)}"
        )
    return Control(
        trials=len(one),
        ratio=labels.shift,
        floor=max(labels.shift.high, 1 / labels.shift.low) - 1,
        labels_p_value=adjusted[0],
        order_p_value=adjusted[1] if order else None,
        warnings=tuple(warnings),
    )


def _earlier_against_later(
    first: Floats, second: Floats, first_ran_first: NDArray[np.bool_]
) -> SignedRank:
    if len(first_ran_first) != len(first):
        raise ValueError(f"{len(first_ran_first)} blocks have an order, {len(first)} have trials")
    earlier = np.where(first_ran_first, first, second)
    later = np.where(first_ran_first, second, first)
    return signed_rank(earlier, later)


def _percent(ratio: Estimate) -> str:
    return f"{abs(ratio.value - 1) * 100:.1f} %"
