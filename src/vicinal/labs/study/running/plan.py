"""The launches of a study, and their order.

A block contains each environment once for each workload, and one environment a second time, as the
A/A control. So a temporary disturbance of the machine affects all environments of a block alike.
The order within a block is random for each block, so that no environment is always first.
"""

import random
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.adapt import subject_of
from vicinal.labs.study.file.model import Environment, Study, Workload, control_name

_Part = TypeVar("_Part", Environment, Workload)


@dataclass(frozen=True)
class Planned:
    """One planned launch."""

    block: int
    """Number of the block, from 1."""
    workload: str
    environment: str
    """The environment in which the workload is launched."""
    control: bool = False
    """Whether this is the environment's second launch in the block."""

    @property
    def named(self) -> str:
        """The environment's name in the trial."""
        return control_name(self.environment) if self.control else self.environment

    @property
    def key(self) -> tuple[int, str, str]:
        """Identifies the launch within the study."""
        return self.block, self.named, self.workload


class Plan:
    """All launches of a study, block by block; the same seed gives the same plan."""

    def __init__(self, study: Study, seed: int, left_out: Collection[tuple[str, str]] = ()) -> None:
        self._study = study
        self._seed = seed
        self._left_out = left_out
        """Environments and workloads that are not launched together."""

    def block(self, number: int) -> list[Planned]:
        """The launches of a block, in their order."""
        chance = random.Random(f"{self._seed}/{number}")
        workloads = list(self._study.workloads)
        chance.shuffle(workloads)
        planned = []
        for workload in workloads:
            launches = list(self._launches(number, workload.name))
            chance.shuffle(launches)
            planned += launches
        return planned

    def _launches(self, number: int, workload: str) -> Iterator[Planned]:
        for environment in self._study.environments:
            if (environment.name, workload) in self._left_out:
                continue
            yield Planned(number, workload, environment.name)
            if environment.name == controlled(self._study):
                yield Planned(number, workload, environment.name, control=True)


def controlled(study: Study) -> str | None:
    """The environment that each block measures a second time; None if there is none."""
    design = study.design
    if design.control is not None:
        return design.control
    return design.comparisons[0].base if design.comparisons else None


def selected(study: Study, only: Sequence[str]) -> Study:
    """The part of a study that patterns name: ENVIRONMENT/WORKLOAD, where `*` matches anything.

    Raises VicinalError if nothing is left.
    """
    if not only:
        return study
    pairs = [
        (environment.name, workload.name)
        for environment in study.environments
        for workload in study.workloads
        if any(fnmatchcase(f"{environment.name}/{workload.name}", each) for each in only)
    ]
    if not pairs:
        raise VicinalError(
            f"no part of the study {study.name} matches {' or '.join(only)}",
            "give ENVIRONMENT/WORKLOAD, where * matches anything; "
            f"`vicinal study show {study.name}` lists both",
        )
    environments = {environment for environment, _ in pairs}
    workloads = {workload for _, workload in pairs}
    kept = [
        each
        for each in study.design.comparisons
        if each.base in environments and each.test in environments
    ]
    control = controlled(study)
    design = replace(
        study.design,
        comparisons=tuple(kept),
        control=control if control in environments else None,
    )
    return replace(
        study,
        environments=_parts(study.environments, environments),
        workloads=_parts(study.workloads, workloads),
        design=design,
        published=tuple(
            each
            for each in study.published
            if each.workload in workloads
            and environments >= {*filter(None, [each.environment]), *(each.comparison or ())}
        ),
        adaptations=tuple(
            each
            for each in study.adaptations
            if subject_of(each) in {None, *environments, *workloads}
        ),
        unavailable={
            name: why
            for name, why in study.unavailable.items()
            if name in environments or name in workloads
        },
    )


def _parts(parts: Sequence[_Part], names: Container[str]) -> tuple[_Part, ...]:
    """The parts with these names. A stand-in whose original is not among them becomes an ordinary
    part.
    """
    kept = (each for each in parts if each.name in names)
    return tuple(
        each
        if each.stands_for is None or each.stands_for in names
        else replace(each, stands_for=None)
        for each in kept
    )
