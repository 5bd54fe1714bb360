"""The choice after a confirmation: each phase's Pareto set and choice, and one for all phases."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import log

from vicinal.labs.statistics.correct import correct
from vicinal.labs.statistics.signed_rank import signed_rank
from vicinal.labs.tune.search.confirming import Block, Compared, Confirmation, Verdict
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point


class Outcome(StrEnum):
    """How a phase's search ended."""

    BETTER = "a better setting"
    TRADE_OFF = "a trade-off"
    """Settings that are better by one objective are worse by another: people have to choose."""
    NO_BETTER = "no better setting"
    UNFINISHED = "the budget ended before anything could be confirmed"


@dataclass(frozen=True)
class PhaseChoice:
    """The choice of one phase."""

    phase: str
    outcome: Outcome
    choice: Point
    """The better setting, or the present one."""
    pareto: tuple[Point, ...]
    """Finalists and present setting that no other setting dominates, by the estimates."""

    to_dict = asdict


@dataclass(frozen=True)
class Choice:
    """The choices of all phases."""

    phases: tuple[PhaseChoice, ...]
    common: Point | None
    """The setting for all phases; None if a phase is shown to lose by a common setting."""
    losses: Mapping[str, float]
    """By phase: how much worse the best common setting is, if that is shown."""

    to_dict = asdict


def choose(
    confirmation: Confirmation, present: Point, objectives: Mapping[str, Sequence[Objective]]
) -> Choice:
    """Choose a setting for each phase by its objectives, and decide whether one setting fits
    all.
    """
    phases = tuple(
        _choose_phase(phase, confirmation, present, objectives[phase])
        for phase in confirmation.blocks
    )
    if len(phases) == 1:
        return Choice(phases, phases[0].choice, {})
    common = _best_common(phases, confirmation, present)
    losses = _losses(phases, common, confirmation, objectives)
    return Choice(phases, None if losses else common, losses)


def pareto(costs: Mapping[Point, Sequence[float]]) -> tuple[Point, ...]:
    """The points that no other point dominates: as cheap by all costs, and cheaper by one."""

    def dominated(point: Point) -> bool:
        own = costs[point]
        return any(
            all(a <= b for a, b in zip(other, own, strict=True)) and tuple(other) != tuple(own)
            for other in costs.values()
        )

    return tuple(point for point in costs if not dominated(point))


def _choose_phase(
    phase: str, confirmation: Confirmation, present: Point, objectives: Sequence[Objective]
) -> PhaseChoice:
    rows = _by_point(each for each in confirmation.compared if each.phase == phase)
    if not rows:
        unfinished = len(confirmation.blocks[phase]) < confirmation.needed and confirmation.family
        outcome = Outcome.UNFINISHED if unfinished else Outcome.NO_BETTER
        return PhaseChoice(phase, outcome, present, (present,))
    costs = {present: [0.0] * len(objectives)}
    costs |= {point: [_cost(each) for each in found] for point, found in rows.items()}
    verdicts = {point: {each.verdict for each in found} for point, found in rows.items()}
    helping = [point for point, found in verdicts.items() if Verdict.BETTER in found]
    harmless = [point for point in helping if Verdict.WORSE not in verdicts[point]]
    choice, outcome = present, Outcome.NO_BETTER
    if harmless:
        choice = min(harmless, key=lambda point: sum(costs[point]))
        outcome = Outcome.BETTER
    elif helping:
        outcome = Outcome.TRADE_OFF
    return PhaseChoice(phase, outcome, choice, pareto(costs))


def _best_common(
    phases: Sequence[PhaseChoice], confirmation: Confirmation, present: Point
) -> Point:
    """The choice of a phase with the lowest total cost over all phases.

    Choices that are shown to be worse than the present setting in any phase are excluded.
    """
    rows = _by_point(confirmation.compared)
    candidates = dict.fromkeys([present, *(each.choice for each in phases)])
    # Each phase has the same weight, for any number of objectives.
    weights = {each.phase: 1 / _objectives(confirmation, each.phase) for each in phases}
    costs = {
        point: sum(weights[each.phase] * _cost(each) for each in rows.get(point, ()))
        for point in candidates
        if all(each.verdict is not Verdict.WORSE for each in rows.get(point, ()))
    }
    return min(costs, key=costs.__getitem__)


def _objectives(confirmation: Confirmation, phase: str) -> int:
    return len({each.objective for each in confirmation.compared if each.phase == phase}) or 1


def _losses(
    phases: Sequence[PhaseChoice],
    common: Point,
    confirmation: Confirmation,
    objectives: Mapping[str, Sequence[Objective]],
) -> dict[str, float]:
    """Phases whose own choice is shown to be better than the common setting by an objective."""
    tests = {}
    for each in phases:
        blocks = confirmation.blocks[each.phase]
        if each.choice == common or len(blocks) < confirmation.needed:
            continue
        for objective in objectives[each.phase]:
            tests[each.phase, objective] = signed_rank(
                _values(blocks, common, objective), _values(blocks, each.choice, objective)
            )
    named = {f"{phase} {objective}": test.p_value for (phase, objective), test in tests.items()}
    claims = correct(named, alpha=confirmation.alpha).claims
    losses: dict[str, float] = {}
    for (phase, objective), test in tests.items():
        ratio = test.shift.value
        worse = ratio - 1 if objective.lower_is_better else 1 - ratio
        if claims[f"{phase} {objective}"].claimed and worse > 0:
            losses[phase] = max(losses.get(phase, 0.0), worse)
    return losses


def _values(blocks: Sequence[Block], point: Point, objective: Objective) -> list[float]:
    return [block[point].values[objective] for block in blocks]


def _cost(compared: Compared) -> float:
    cost = log(compared.ratio.value)
    return cost if compared.objective.lower_is_better else -cost


def _by_point(compared: Iterable[Compared]) -> dict[Point, list[Compared]]:
    found: dict[Point, list[Compared]] = {}
    for each in compared:
        found.setdefault(each.point, []).append(each)
    return found
