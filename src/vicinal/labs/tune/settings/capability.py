"""Tries which knobs can be set: drivers may refuse or ignore values of knobs that they list.

A value is set, read back, and the former value restored. The changes are journaled as trials are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.host import HostKnob
from vicinal.labs.tune.settings.applier import Applier, Work


class Ability(StrEnum):
    """Whether a knob can be set, as shown to people."""

    SETTABLE = "yes"
    IGNORED = "accepts but ignores"
    """The driver reports no error, and the value stays."""
    REFUSED = "not supported"
    """The driver refuses each value that was tried."""
    READABLE = "readable only"
    """This user may not set the knob."""
    FORBIDDEN = "left alone"
    """The interface carries this session or the default route."""
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """The result of trying a knob."""

    ability: Ability
    why: str = ""
    """A phrase, if the knob cannot be set, or not to every value."""
    taken: tuple[Value, ...] = ()
    """The values that were read back as set, in the knob's order."""


def try_knob(
    applier: Applier,
    knob: HostKnob,
    every: bool = True,
    values: Sequence[Value] | None = None,
) -> Finding:
    """Set a knob to each of its values, or until one works, and restore the former value.

    `values` replace the knob's own values. A knob whose link may go down is tried with one value
    only. Raises VicinalError if the former value cannot be restored.
    """
    values = knob.values if values is None else values
    taken: list[Value] = []
    reasons: list[str] = []
    ignored = 0
    with applier.temporarily() as work:
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


def _try_value(work: Work, knob: HostKnob, before: Value, value: Value) -> tuple[Value, str]:
    """The value that is read back, and the reason of a refusal, or ""."""
    try:
        work.write(knob, before, value)
    except VicinalError as error:
        return value, error.message
    return knob.read(), ""


def _shorten(reasons: list[str]) -> str:
    """The first two reasons, and the number of others."""
    different = list(dict.fromkeys(reasons))
    more = f"; and {len(different) - 2} more" if len(different) > 2 else ""
    return "; ".join(different[:2]) + more
