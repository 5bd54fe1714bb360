"""Adapting a study to a machine, by the rules that docs/reference/study-file.md lists.

    study = adapt(load_study("p2-fig4"), examine_machine())

What comes out depends on the study and the facts alone. Every change is an Adaptation of the study,
with its rule; what the machine cannot give stays in it, and is unavailable with the reason. Nothing
is ever measured under the name of something else: a stand-in keeps its own name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from vicinal.labs.study.file.adapt_cache import cache_notes
from vicinal.labs.study.file.adapt_memory import share_memory
from vicinal.labs.study.file.adapt_nodes import Unavailable, fit_environment
from vicinal.labs.study.file.adapt_stand_ins import let_stand_in
from vicinal.labs.study.file.adapt_time import less_blocks, less_of_workload, published_of_sizes
from vicinal.labs.study.file.adapt_workloads import fit_workload, ranks_of_machine
from vicinal.labs.study.file.machine import MachineFacts
from vicinal.labs.study.file.model import Adaptation, Environment, Study, Workload


class Fit(StrEnum):
    """How much of a study a machine can give."""

    WHOLE = "whole"
    ADAPTED = "adapted"
    IN_PART = "in part"
    """Something of it has nothing in its place."""
    NOT = "not here"


def adapt(study: Study, machine: MachineFacts) -> Study:
    """The study as this machine can run it. One that was adapted already stays as it is."""
    if study.adaptations or study.unavailable:
        return study
    adaptations: list[Adaptation] = []
    unavailable: dict[str, str] = {}
    environments: list[Environment] = []
    for environment in study.environments:
        try:
            environments.append(fit_environment(environment, machine, adaptations))
        except Unavailable as lacking:
            unavailable[environment.name] = str(lacking)
            environments.append(environment)
    fitted = replace(study, environments=tuple(environments))
    study = _fit_workloads(fitted, study, machine, adaptations, unavailable)
    study = let_stand_in(study, unavailable, adaptations)
    study = share_memory(study, machine, unavailable, adaptations)
    if _emulated(study.environments, unavailable, machine):
        study = less_blocks(replace(study, unavailable=unavailable), adaptations)
    # Stand-ins that are not needed are gone, and so is what was said of them.
    names = {each.name for each in study.environments} | {each.name for each in study.workloads}
    study = replace(
        study,
        adaptations=tuple(each for each in adaptations if subject_of(each) in {None, *names}),
        unavailable={name: why for name, why in unavailable.items() if name in names},
    )
    said = (note for note in cache_notes(study, machine) if note not in study.notes)
    return replace(study, notes=(*study.notes, *said))


def fit_of(study: Study) -> Fit:
    """How much of it is left, of a study that was adapted."""
    lacking = set(study.unavailable)
    environments = {each.name: each.stands_for for each in study.environments}
    workloads = {each.name: each.stands_for for each in study.workloads}
    if lacking >= environments.keys() or lacking >= workloads.keys():
        return Fit.NOT
    parts = environments | workloads
    replaced = {other for name, other in parts.items() if name not in lacking}
    # A stand-in that cannot be given either is no further loss.
    if any(parts[name] is None and name not in replaced for name in lacking):
        return Fit.IN_PART
    return Fit.ADAPTED if lacking or study.adaptations else Fit.WHOLE


def by_rule(adaptations: Iterable[Adaptation]) -> dict[str, list[str]]:
    """What was adapted, by the rule that wanted it."""
    rules: dict[str, list[str]] = {}
    for each in adaptations:
        rules.setdefault(each.why, []).append(each.what)
    return rules


def _fit_workloads(
    study: Study,
    asked: Study,
    machine: MachineFacts,
    adaptations: list[Adaptation],
    unavailable: dict[str, str],
) -> Study:
    needed = _needed(study.environments, unavailable)
    most = min(
        (ranks_of_machine(asked.environment(each.name), each, machine) for each in needed),
        default=max(each.ranks for each in study.workloads),
    )
    emulated = _emulated(study.environments, unavailable, machine)
    workloads: list[Workload] = []
    for workload in study.workloads:
        changes: list[Adaptation] = []
        try:
            fitted = fit_workload(workload, machine, most, emulated, changes)
            if emulated:
                fitted = less_of_workload(fitted, changes)
            _check_new(fitted, workloads, unavailable)
        except Unavailable as lacking:
            unavailable[workload.name] = str(lacking)
            workloads.append(workload)
        else:
            adaptations += changes
            workloads.append(fitted)
    return published_of_sizes(replace(study, workloads=tuple(workloads)))


def _needed(environments: Sequence[Environment], unavailable: dict[str, str]) -> list[Environment]:
    """Those that will be measured."""
    return [
        each
        for each in environments
        if each.name not in unavailable
        and (each.stands_for is None or each.stands_for in unavailable)
    ]


def _emulated(
    environments: Sequence[Environment], unavailable: dict[str, str], machine: MachineFacts
) -> bool:
    """Whether an emulated machine takes part."""
    return machine.emulated and any(
        "vm" in each.backends for each in _needed(environments, unavailable)
    )


def _check_new(fitted: Workload, before: Sequence[Workload], unavailable: dict[str, str]) -> None:
    """Raise Unavailable where a workload became what another one is."""
    for other in before:
        same = replace(fitted, name=other.name, title=other.title, stands_for=other.stands_for)
        if same == other and other.name not in unavailable:
            raise Unavailable(f"on this machine it is what {other.name} is")


def subject_of(adaptation: Adaptation) -> str | None:
    """The environment or workload that it is about."""
    kind, _, rest = adaptation.what.partition(" ")
    return rest.partition(":")[0] if kind in ("environment", "workload") else None
