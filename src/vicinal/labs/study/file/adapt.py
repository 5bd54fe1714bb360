"""Adapts a study to a machine, by the rules in docs/reference/study-file.md.

    study = adapt(load_study("p2-fig4"), examine_host())

The outcome depends only on the study and the facts about the host. Every change is an Adaptation
of the study, with its rule. Parts that the machine cannot provide stay in the study and are
unavailable, with the reason. Nothing is measured under the name of something else: a stand-in keeps
its own name. It takes over the comparisons of the part that it stands for. Figures that were
published of that part are shown beside the stand-in, with a note that names the part.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from vicinal.labs.study.file.adapt_nodes import Unavailable, fit_environment, share_memory
from vicinal.labs.study.file.adapt_workloads import (
    cache_notes,
    fit_workload,
    less_blocks,
    less_of_workload,
    published_of_sizes,
    ranks_of_host,
)
from vicinal.labs.study.file.host_facts import HostFacts
from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Design,
    Environment,
    Published,
    Study,
    Workload,
)

_STANDS_IN = "a stand-in is measured if the machine cannot provide what it stands for"
_BOTH_SIDES = "a comparison has two sides"


class Fit(StrEnum):
    """How much of a study a machine can run."""

    WHOLE = "whole"
    ADAPTED = "adapted"
    IN_PART = "in part"
    """A part that cannot be provided has no stand-in."""
    NOT = "not here"


def adapt(study: Study, facts: HostFacts) -> Study:
    """The study as this machine can run it. A study that was already adapted stays unchanged."""
    if study.adaptations or study.unavailable:
        return study
    adaptations: list[Adaptation] = []
    unavailable: dict[str, str] = {}
    environments: list[Environment] = []
    for environment in study.environments:
        try:
            environments.append(fit_environment(environment, facts, adaptations))
        except Unavailable as lacking:
            unavailable[environment.name] = str(lacking)
            environments.append(environment)
    fitted = replace(study, environments=tuple(environments))
    study = _fit_workloads(fitted, study, facts, adaptations, unavailable)
    study = published_of_sizes(let_stand_in(study, unavailable, adaptations))
    study = share_memory(study, facts, unavailable, adaptations)
    if _emulated(study.environments, unavailable, facts):
        study = less_blocks(replace(study, unavailable=unavailable), adaptations)
    # Stand-ins that are not needed were removed: remove their adaptations too.
    names = {each.name for each in study.environments} | {each.name for each in study.workloads}
    study = replace(
        study,
        adaptations=tuple(each for each in adaptations if subject_of(each) in {None, *names}),
        unavailable={name: why for name, why in unavailable.items() if name in names},
    )
    said = (note for note in cache_notes(study, facts) if note not in study.notes)
    return replace(study, notes=(*study.notes, *said))


def fit_of(study: Study) -> Fit:
    """How much of an adapted study is left."""
    lacking = set(study.unavailable)
    environments = {each.name: each.stands_for for each in study.environments}
    workloads = {each.name: each.stands_for for each in study.workloads}
    if lacking >= environments.keys() or lacking >= workloads.keys():
        return Fit.NOT
    parts = environments | workloads
    replaced = {other for name, other in parts.items() if name not in lacking}
    # A stand-in that cannot be provided either loses nothing more.
    if any(parts[name] is None and name not in replaced for name in lacking):
        return Fit.IN_PART
    return Fit.ADAPTED if lacking or study.adaptations else Fit.WHOLE


def by_rule(adaptations: Iterable[Adaptation]) -> dict[str, list[str]]:
    """Adaptations grouped by their rule."""
    rules: dict[str, list[str]] = {}
    for each in adaptations:
        rules.setdefault(each.why, []).append(each.what)
    return rules


def _fit_workloads(
    study: Study,
    asked: Study,
    facts: HostFacts,
    adaptations: list[Adaptation],
    unavailable: dict[str, str],
) -> Study:
    needed = _needed(study.environments, unavailable)
    most = min(
        (ranks_of_host(asked.environment(each.name), each, facts) for each in needed),
        default=max(each.ranks for each in study.workloads),
    )
    emulated = _emulated(study.environments, unavailable, facts)
    workloads: list[Workload] = []
    for workload in study.workloads:
        changes: list[Adaptation] = []
        try:
            fitted = fit_workload(workload, facts, most, emulated, changes)
            if emulated:
                fitted = less_of_workload(fitted, changes)
            _check_new(fitted, workloads, unavailable)
        except Unavailable as lacking:
            unavailable[workload.name] = str(lacking)
            workloads.append(workload)
        else:
            adaptations += changes
            workloads.append(fitted)
    return replace(study, workloads=tuple(workloads))


def _needed(environments: Sequence[Environment], unavailable: dict[str, str]) -> list[Environment]:
    """The environments that will be measured."""
    return [
        each
        for each in environments
        if each.name not in unavailable
        and (each.stands_for is None or each.stands_for in unavailable)
    ]


def _emulated(
    environments: Sequence[Environment], unavailable: dict[str, str], facts: HostFacts
) -> bool:
    """Whether emulated virtual machines take part."""
    return facts.emulated and any(
        "vm" in each.backends for each in _needed(environments, unavailable)
    )


def _check_new(fitted: Workload, before: Sequence[Workload], unavailable: dict[str, str]) -> None:
    """Raise Unavailable if a fitted workload became equal to another workload."""
    for other in before:
        same = replace(fitted, name=other.name, title=other.title, stands_for=other.stands_for)
        if same == other and other.name not in unavailable:
            raise Unavailable(f"on this machine it is the same as {other.name}")


def subject_of(adaptation: Adaptation) -> str | None:
    """The environment or workload that an adaptation concerns; None for any other part."""
    kind, _, rest = adaptation.what.partition(" ")
    return rest.partition(":")[0] if kind in ("environment", "workload") else None


def let_stand_in(
    study: Study, unavailable: Mapping[str, str], adaptations: list[Adaptation]
) -> Study:
    """The study without stand-ins that are not needed, and with stand-ins for unavailable parts."""
    environments = _stand_ins(study.environments, unavailable)
    workloads = _stand_ins(study.workloads, unavailable)
    for kind, found in (("environment", environments), ("workload", workloads)):
        adaptations += [
            Adaptation(f"{kind} {name}: measured instead of {other}", _STANDS_IN)
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
    """Whether a part is measured, or listed as unavailable because it has no usable stand-in."""
    other = part.stands_for
    return other is None or (other in unavailable and found.get(other, part.name) == part.name)


def _stand_ins(
    parts: Sequence[Environment] | Sequence[Workload], unavailable: Mapping[str, str]
) -> dict[str, str]:
    """For each unavailable part, the first available part that stands for it."""
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
            continue  # a comparison of a stand-in that is not needed
        lost = [side for side in (base, test) if side in unavailable]
        if lost or base == test:
            why = (
                f"{' and '.join(lost)} cannot be measured here"
                if lost
                else "both sides are the same here"
            )
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
                    "by default the control is the base of the first comparison",
                )
            )
            control = None
    return replace(design, comparisons=tuple(kept), control=control)


def _published(
    figure: Published, environments: Mapping[str, str], workloads: Mapping[str, str]
) -> Published:
    """The figure, moved to the stand-ins of its environments and workload."""
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
