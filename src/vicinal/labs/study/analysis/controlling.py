"""The A/A control of a study: one environment measured twice in each block, beside itself."""

from vicinal.labs.statistics.control import CONTROL_ALPHA, Control, control
from vicinal.labs.statistics.correct import Correction, correct
from vicinal.labs.statistics.ratio import paired_ratio
from vicinal.labs.statistics.samples import TooFewTrialsError
from vicinal.labs.study.analysis.cells import Cells
from vicinal.labs.study.analysis.comparing import Pairs, pair
from vicinal.labs.study.analysis.summary import ControlFound
from vicinal.labs.study.file.model import Comparison, Study, control_name


def judge_control(study: Study, cells: Cells) -> ControlFound | None:
    """What the control showed, for the first statistic of each workload and size.

    None where there was no control. Where nothing differs, all that a correction has to keep is
    the chance of any false finding, and Benjamini and Hochberg's keeps that as Holm's does.
    """
    name = controlled(study, cells)
    if name is None:
        return None
    question = Comparison(control_name(name), name)
    found: dict[str, Control] = {}
    widest, untested = 0.0, 0
    for environment, workload, size in cells:
        if environment != name:
            continue
        statistic = study.workload(workload).statistics[0]
        pairs = pair(cells, question, workload, size, statistic)
        if pairs is None or min(min(side) for side in pairs.sides) <= 0:
            continue
        second, first = pairs.sides
        widest = max(widest, abs(paired_ratio(first, second) - 1))
        judged = _judge(pairs)
        if judged is None:
            untested += 1
        else:
            found[pairs.test.place] = judged
    if not found and not untested:
        return None
    family = correct(
        {place: _p_value(each) for place, each in found.items()},
        Correction.BENJAMINI_HOCHBERG,
        CONTROL_ALPHA,
    )
    different = tuple(
        f"{place}: {'; '.join(found[place].warnings)}"
        for place, claim in family.claims.items()
        if claim.claimed
    )
    return ControlFound(name, len(found), different, widest, untested)


def controlled(study: Study, cells: Cells) -> str | None:
    """The environment that was measured twice; None where none was."""
    return next(
        (
            environment.name
            for environment in study.environments
            if any(name == control_name(environment.name) for name, _, _ in cells)
        ),
        None,
    )


def _judge(pairs: Pairs) -> Control | None:
    """With the order in which both ran, or without it where there are too few blocks for that."""
    second, first = pairs.sides
    first_ran_first = [
        pairs.test.trials[block].number < pairs.base.trials[block].number for block in pairs.blocks
    ]
    for order in (first_ran_first, None):
        try:
            return control(first, second, first_ran_first=order)
        except TooFewTrialsError:
            continue
    return None


def _p_value(judged: Control) -> float:
    """Of either test: they are corrected for each other."""
    orders = [] if judged.order_p_value is None else [judged.order_p_value]
    return min([judged.labels_p_value, *orders])
