"""Less to measure where virtual machines are emulated: a study takes minutes and not hours.

A window of 64 messages takes such a machine a second over its virtio card. What is left are the
same operations in the same environments, at every second power of two, in as many blocks as make
claims.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vicinal.labs.study.file.model import Adaptation, Study, Workload
from vicinal.labs.study.file.trials import trials_needed

_SIZES = 8
"""So few are left as they are."""
_APART = 4
_WINDOW = 8
_BLOCKS = 8

_WHY = "emulated machines are slow: fewer sizes, messages in flight and blocks of each"
_IN_FLIGHT = ("bandwidth", "bidirectional")
"""Operations that have 64 messages in flight unless the workload says otherwise."""
_USUAL_WINDOW = 64


def less_of_workload(workload: Workload, adaptations: list[Adaptation]) -> Workload:
    """The same, of Vicinal's own program, with fewer sizes and a smaller window."""
    if workload.driver != "record":
        return workload
    options: dict[str, Any] = dict(workload.options)
    said = []
    sizes = _some(workload.sizes)
    if len(sizes) < len(workload.sizes):
        said.append(f"{len(sizes)} sizes instead of {len(workload.sizes)}")
    usual = _USUAL_WINDOW if workload.operation in _IN_FLIGHT else 0
    window = options.get("window", usual)
    if type(window) is int and window > _WINDOW:
        said.append(f"window {_WINDOW} instead of {window}")
        options["window"] = _WINDOW
    adaptations += [Adaptation(f"workload {workload.name}: {what}", _WHY) for what in said]
    return replace(workload, sizes=sizes, options=options)


def less_blocks(study: Study, adaptations: list[Adaptation]) -> Study:
    """The study with as many blocks as its claims take, and eight at least."""
    design = study.design
    most = design.most_trials or design.trials
    fewer = max(_BLOCKS, trials_needed(study))
    if most <= fewer:
        return study
    trials = min(design.trials, fewer)
    adaptations.append(Adaptation(f"design: {fewer} blocks instead of {most}", _WHY))
    capped = fewer if design.most_trials is not None else None
    return replace(study, design=replace(design, trials=trials, most_trials=capped))


def published_of_sizes(study: Study) -> Study:
    """The study without figures that were published of sizes which are not measured."""
    sizes = {each.name: each.sizes for each in study.workloads}
    published = tuple(
        each
        for each in study.published
        if each.size is None or not sizes[each.workload] or each.size in sizes[each.workload]
    )
    return replace(study, published=published)


def _some(sizes: Sequence[int]) -> tuple[int, ...]:
    """The smallest, each that is so far from the one before it, and the largest."""
    if len(sizes) <= _SIZES:
        return tuple(sizes)
    ordered = sorted(sizes)
    kept = ordered[:1]
    for size in ordered[1:]:
        if size >= kept[-1] * _APART or size == ordered[-1]:
            kept.append(size)
    return tuple(kept)
