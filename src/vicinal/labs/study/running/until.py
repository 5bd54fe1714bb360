"""After which block a study ends: a fixed number, or when its comparisons are decided.

How it is looked at the data more than once without being wrong more often is for
vicinal.labs.statistics.stopping to say.
"""

from dataclasses import dataclass
from typing import Any

from vicinal.labs.statistics.stopping import watch
from vicinal.labs.study.analysis.looks import rule_of
from vicinal.labs.study.file.model import Design
from vicinal.labs.study.running.estimates import Estimates, Key


@dataclass(frozen=True)
class Ending:
    """Why a study needs no more blocks."""

    blocks: int
    reasons: dict[str, str]
    """By comparison, workload and size; none where the number of blocks was fixed."""

    def to_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {"blocks": self.blocks, "reasons": self.reasons}


def ended(design: Design, estimates: Estimates, blocks: int) -> Ending | None:
    """Whether so many blocks are enough, and why; None: there is to be another one."""
    if blocks < design.trials:
        return None
    if design.most_trials is None:
        return Ending(blocks, {})
    reasons = _reasons(design, estimates)
    if blocks >= design.most_trials or (reasons and all(reasons.values())):
        return Ending(blocks, {name: why for name, why in reasons.items() if why is not None})
    return None


def _reasons(design: Design, estimates: Estimates) -> dict[str, str | None]:
    """Of each comparison that there are values of: why it needs no more blocks; None: it does."""
    rule = rule_of(design, len(design.comparisons) * len(estimates.keys))
    found: dict[str, str | None] = {}
    for comparison in design.comparisons:
        for key in estimates.keys:
            ours, theirs = estimates.pairs(key, comparison.test, comparison.base)
            if ours:  # else one side failed, or cannot be had here
                look = watch(rule, ours, theirs) if rule is not None else None
                reason = look.reason if look is not None else None
                name = _name(comparison.test, comparison.base, key)
                found[name] = None if reason is None else reason.value
    return found


def _name(test: str, base: str, key: Key) -> str:
    workload, size = key
    return f"{test}/{base} {workload}" + ("" if size is None else f" {size}")
