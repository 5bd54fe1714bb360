"""What can be set here: tried, as drivers refuse what they say they have, or take it and ignore it.

A value is set, read back, and the former one set again, all of it journaled as trials are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.machine import MachineKnob
from vicinal.labs.tune.settings.keeper import Keeper, Work


class Ability(StrEnum):
    """Whether a knob can be set."""

    SETTABLE = "yes"
    IGNORED = "accepts but ignores"
    """Its driver says nothing, and does nothing."""
    REFUSED = "not supported"
    """Its driver refuses each value that was tried."""
    READABLE = "readable only"
    """Not by this user."""
    FORBIDDEN = "left alone"
    """Its interface carries this session."""
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """What trying came to."""

    ability: Ability
    why: str = ""
    """A phrase, where it cannot be set, or not to every value."""
    taken: tuple[Value, ...] = ()
    """The values that were set and read back, in the order of the knob's."""


def try_knob(
    keeper: Keeper,
    knob: MachineKnob,
    every: bool = True,
    values: Sequence[Value] | None = None,
) -> Finding:
    """Set a knob to each of its values, or until one is taken, and leave it as it was.

    `values` are tried instead of those that it has by itself. One whose link may go down is tried
    with one value only. Raises VicinalError where it cannot be set back.
    """
    values = knob.values if values is None else values
    taken: list[Value] = []
    reasons: list[str] = []
    ignored = 0
    with keeper.temporarily() as work:
        before = knob.read()
        others = [value for value in values if value != before]
        for value in others:
            found, why = _try_value(work, knob, before, value)
            if why:
                reasons.append(why)
                continue
            if found == value:
                taken.append(value)
                if not every or not knob.gentle:
                    break
            elif found == before:
                ignored += 1
            else:
                reasons.append(f"{value} becomes {found}")
            knob.write(before)
    if taken:
        had = [before] if before in values else []
        return Finding(
            Ability.SETTABLE,
            _shorten(reasons),
            tuple(value for value in values if value in [*taken, *had]),
        )
    if ignored:
        return Finding(Ability.IGNORED, f"it stays {before} without an error")
    if not others:
        return Finding(Ability.REFUSED, f"{before} is the only value")
    return Finding(Ability.REFUSED, _shorten(reasons))


def _try_value(work: Work, knob: MachineKnob, before: Value, value: Value) -> tuple[Value, str]:
    """What is read back, and why it was refused, if it was."""
    try:
        work.write(knob, before, value)
    except VicinalError as error:
        return value, error.message
    return knob.read(), ""


def _shorten(reasons: list[str]) -> str:
    """A few of them."""
    different = list(dict.fromkeys(reasons))
    more = f"; and {len(different) - 2} more" if len(different) > 2 else ""
    return "; ".join(different[:2]) + more
