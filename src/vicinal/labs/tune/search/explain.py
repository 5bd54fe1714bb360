"""The reasons for a search's choice, in words: the trials, their results, and the certainty."""

from collections import Counter
from collections.abc import Iterator, Sequence

from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.tune.search.choosing import Outcome, PhaseChoice
from vicinal.labs.tune.search.confirming import Compared
from vicinal.labs.tune.search.finding import Found, Plan
from vicinal.labs.tune.search.mechanism import Mechanism
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.space import Point

_SHOWN = 0.05
"""Effects with larger p-values are not shown one by one."""


def explain(found: Found) -> str:
    """The text, in lines of any length, each with a line break."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: Found) -> Iterator[str]:
    plan = found.plan
    yield f"Settings: {found.space.size} of {_counted(len(found.space.rows), 'knob')}."
    yield f"Objectives: {described_objectives(plan)}."
    seconds = sum(trial.seconds for trial in found.trials)
    yield (
        f"Trials: {len(found.trials)} in {seconds:.0f} s, with seed {plan.seed}"
        f" ({', '.join(f'{n} {stage}' for stage, n in _stages(found))})."
    )
    for phase in found.choice.phases:
        yield ""
        yield from _of_phase(found, phase)
    if len(found.choice.phases) > 1:
        yield ""
        yield from _of_all(found)
    if found.failed:
        yield ""
        yield "Settings that failed, and were excluded:"
        for point, why in found.failed.items():
            yield f"  {_changes(found, point)}: {why}"


def described_objectives(plan: Plan) -> str:
    """The objectives of all phases, or of each phase if they differ."""
    labels = {
        phase: ", ".join(each.label for each in objectives)
        for phase, objectives in plan.by_phase.items()
    }
    if len(set(labels.values())) == 1:
        return labels[plan.phases[0]]
    return ", ".join(f"{of_phase} of {phase}" for phase, of_phase in labels.items())


def _of_phase(found: Found, phase: PhaseChoice) -> Iterator[str]:
    rows = [each for each in found.confirmation.compared if each.phase == phase.phase]
    yield f"Phase {phase.phase}: {phase.outcome}."
    yield from _of_screening(found, phase.phase)
    match phase.outcome:
        case Outcome.BETTER:
            yield f"  Set {_changes(found, phase.choice)}."
            if idle := _unseen(found, phase):
                yield f"  These knobs showed no effect of their own: {', '.join(idle)}."
        case Outcome.TRADE_OFF:
            yield (
                "  Nothing is chosen: settings that are better by one objective are worse by "
                "another."
            )
        case Outcome.UNFINISHED:
            yield (
                f"  The confirmation has {len(found.confirmation.blocks[phase.phase])} blocks, and "
                f"a claim needs {found.confirmation.needed}."
            )
        case Outcome.NO_BETTER:
            yield "  The present setting stays: none of the finalists was shown to be better."
    if rows:
        yield (
            f"  Confirmed by {_range([row.blocks for row in rows])} fresh blocks "
            f"(trials {_numbers(found, phase.phase)}); p-values are corrected for "
            f"{_counted(found.confirmation.family, 'comparison')} (Holm):"
        )
    for point in dict.fromkeys(row.point for row in rows):
        mark = ", in the Pareto set" if point in phase.pareto else ""
        yield f"  {_changes(found, point)}{mark}:"
        for row in (row for row in rows if row.point == point):
            yield f"    {_compared(row)}"
    if rows and found.space.present in phase.pareto and len(phase.pareto) > 1:
        yield "  The present setting is also in the Pareto set."
    if phase.phase in found.mechanisms:
        yield from _of_mechanism(found.mechanisms[phase.phase])


def _unseen(found: Found, phase: PhaseChoice) -> list[str]:
    """Knobs that the choice changes, and that showed no effect."""
    effects = found.pools[phase.phase].effects
    seen = {each.knob for each in effects if each.p_value <= _SHOWN}
    return [name for name in found.space.changes(phase.choice) if effects and name not in seen]


def _of_screening(found: Found, phase: str) -> Iterator[str]:
    effects = found.pools[phase].effects
    if not effects:
        return
    kept = [found.space.names[at] for at in found.pools[phase].knobs]
    if found.pools[phase].screened:
        yield f"  Screening kept {', '.join(kept)}; effects over all values of the other knobs:"
    else:
        yield "  Effects in all trials before the confirmation, over all values of the other knobs:"
    shown = [each for each in effects if each.p_value <= _SHOWN]
    for each in shown:
        label = ""
        if each.interrupts_p_value is not None and each.interrupts_p_value > _SHOWN:
            label = "; the interrupts did not change: mechanism not established"
        # If the best level is the present one, other levels are worse.
        what = _percent(each.ratio) if each.ratio != 1 else "is best at the present value"
        yield (
            f"    {each.knob} {each.level}: {each.objective.label} {what} "
            f"({_p(each.p_value)}){label}"
        )
    seen = {each.knob for each in shown}
    unseen = dict.fromkeys(each.knob for each in effects if each.knob not in seen)
    if unseen:
        yield f"    no effect shown: {', '.join(unseen)}"


def _of_mechanism(mechanism: Mechanism) -> Iterator[str]:
    if not mechanism.established:
        yield f"  Mechanism not established: {mechanism.reason}."
        return
    yield f"  Mechanism: {mechanism.reason}:"
    for each in mechanism.changes:
        yield f"    {each.vector}: {_interval(each.ratio)} ({_p(each.p_value)})"


def _of_all(found: Found) -> Iterator[str]:
    choice = found.choice
    if choice.common is None:
        yield "The phases need settings of their own. With the best common setting:"
        for phase, loss in choice.losses.items():
            yield f"  {phase} would be {100 * loss:.1f} % worse"
    elif choice.common == found.space.present:
        yield "All phases: the present setting."
    else:
        yield f"All phases: {_changes(found, choice.common)}; no phase is shown to lose by it."


def _compared(row: Compared) -> str:
    objective: Objective = row.objective
    return (
        f"{objective.label} {_figure(row.ours.value)} {objective.unit}, present "
        f"{_figure(row.present.value)}: {_interval(row.ratio)}, {_p(row.adjusted)}: {row.verdict}"
    )


def _figure(value: float) -> str:
    """Four significant digits, and all digits before the decimal point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _interval(ratio: Estimate) -> str:
    low, high = (f"{100 * (end - 1):+.1f}" for end in (ratio.low, ratio.high))
    return f"{_percent(ratio.value)} ({100 * ratio.confidence:.0f} %: {low} to {high})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 1e-4 else "p < 0.0001"


def _changes(found: Found, point: Point) -> str:
    changes = found.space.changes(point)
    if not changes:
        return "the present setting"
    return ", ".join(f"{name} {after} (now {now})" for name, (now, after) in changes.items())


def _numbers(found: Found, phase: str) -> str:
    numbers = [
        trial.number for block in found.confirmation.blocks[phase] for trial in block.values()
    ]
    return f"{min(numbers)} to {max(numbers)}"


def _stages(found: Found) -> list[tuple[str, int]]:
    return list(Counter(str(trial.stage) for trial in found.trials).items())


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
