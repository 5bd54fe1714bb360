"""Environments and workloads that are measured where a machine cannot give others.

A stand-in is measured and shown under its own name. The comparisons of what it stands for become
its own, and what was published of that is shown beside it, with a note that says of what it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Design,
    Environment,
    Published,
    Study,
    Workload,
)

_STANDS_IN = "a stand-in is measured where a machine cannot give what it stands for"
_BOTH_SIDES = "a comparison has two sides"


def let_stand_in(
    study: Study, unavailable: Mapping[str, str], adaptations: list[Adaptation]
) -> Study:
    """The study without stand-ins that are not needed, and with others in their places."""
    environments = _stand_ins(study.environments, unavailable)
    workloads = _stand_ins(study.workloads, unavailable)
    for kind, found in (("environment", environments), ("workload", workloads)):
        adaptations += [
            Adaptation(f"{kind} {name}: measured in the place of {other}", _STANDS_IN)
            for other, name in found.items()
        ]
    study = replace(
        study,
        environments=tuple(
            each for each in study.environments if _is_needed(each, environments, unavailable)
        ),
        workloads=tuple(
            each for each in study.workloads if _is_needed(each, workloads, unavailable)
        ),
    )
    names = {each.name for each in study.environments}
    design = _design(study.design, environments, names, unavailable, adaptations)
    known = names | {each.name for each in study.workloads}
    published = [
        _published(each, environments, workloads)
        for each in study.published
        if {each.workload, each.environment or each.workload, *(each.comparison or ())} <= known
    ]
    return replace(study, design=design, published=tuple(published))


def _is_needed(
    part: Environment | Workload, found: Mapping[str, str], unavailable: Mapping[str, str]
) -> bool:
    """Whether a part is to be measured, or to be named as what cannot be, for want of another."""
    other = part.stands_for
    return other is None or (other in unavailable and found.get(other, part.name) == part.name)


def _stand_ins(
    parts: Sequence[Environment] | Sequence[Workload], unavailable: Mapping[str, str]
) -> dict[str, str]:
    """What cannot be given, to the first that stands for it and can."""
    found: dict[str, str] = {}
    for each in parts:
        other = each.stands_for
        if other is not None and other in unavailable and each.name not in unavailable:
            found.setdefault(other, each.name)
    return found


def _design(
    design: Design,
    stand_ins: Mapping[str, str],
    names: set[str],
    unavailable: Mapping[str, str],
    adaptations: list[Adaptation],
) -> Design:
    kept: list[Comparison] = []
    for each in design.comparisons:
        base, test = (stand_ins.get(side, side) for side in (each.base, each.test))
        if not {base, test} <= names:
            continue  # of a stand-in that is not needed
        lost = [side for side in (base, test) if side in unavailable]
        if lost or base == test:
            why = f"{' and '.join(lost)} cannot be measured here" if lost else "it is one here"
            adaptations.append(
                Adaptation(
                    f"comparison of {each.base} with {each.test}: left out; {why}", _BOTH_SIDES
                )
            )
            continue
        moved = replace(each, base=base, test=test)
        if all((other.base, other.test) != (base, test) for other in kept):
            kept.append(moved)
    control = design.control
    if control is not None:
        control = stand_ins.get(control, control)
        if control in unavailable or control not in names:
            adaptations.append(
                Adaptation(
                    f"control: not {design.control}, which cannot be measured here",
                    "the control is the base of the first comparison where it is nothing else",
                )
            )
            control = None
    return replace(design, comparisons=tuple(kept), control=control)


def _published(
    figure: Published, environments: Mapping[str, str], workloads: Mapping[str, str]
) -> Published:
    """A figure beside what stands for its environment and workload."""
    moved = figure
    others: list[str] = []
    if figure.environment is not None and figure.environment in environments:
        others.append(figure.environment)
        moved = replace(moved, environment=environments[figure.environment])
    if figure.comparison is not None:
        base, test = (environments.get(side, side) for side in figure.comparison)
        if (base, test) != figure.comparison:
            others.append(" and ".join(figure.comparison))
            moved = replace(moved, comparison=(base, test))
    if figure.workload in workloads:
        others.append(figure.workload)
        moved = replace(moved, workload=workloads[figure.workload])
    if not others:
        return figure
    note = f"published of {', '.join(others)}"
    return replace(moved, note="; ".join(filter(None, (figure.note, note))))
