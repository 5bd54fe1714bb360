"""When a study that may stop early looks at its data, and what it may claim then.

vicinal.labs.statistics.stopping says why these intervals hold for whatever reason blocks stopped.
"""

from collections.abc import Sequence
from dataclasses import replace

from vicinal.labs.statistics.samples import TooFewTrialsError
from vicinal.labs.statistics.stopping import Look, Rule, even_rule, watch
from vicinal.labs.study.file.model import Design


def rule_of(design: Design, comparisons: int) -> Rule | None:
    """When it is looked; None where so few blocks can decide nothing before the last."""
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
    # The design has so many blocks at least, and so it is looked at none before.
    return replace(rule, looks=tuple(look for look in rule.looks if look >= design.trials))


def claiming_rule(design: Design, watched: int, tests: int) -> Rule | None:
    """The same looks for all tests that are made in the end, which share alpha.

    Fewer are `watched` while blocks run: the first statistic of each workload. Looks that are too
    early for so many tests are left out. None where all are.
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
    """The look that decided, or else the latest one; None before the first."""
    return watch(rule, ours, theirs) if rule is not None else None
