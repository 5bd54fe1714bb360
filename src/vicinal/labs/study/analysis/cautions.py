"""Warnings that readers of a study need before they rely on a figure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vicinal.labs.study.analysis.cells import Cells, Gathered
from vicinal.labs.study.analysis.comparing import FAMILIES
from vicinal.labs.study.analysis.summary import Compared, ControlFound, Verdict
from vicinal.labs.study.file.model import Correction, Design, Study, control_name
from vicinal.labs.study.result.layout import Condition, StoredTrial
from vicinal.labs.study.result.reading import Result

STEAL = 0.01
"""Share of processor time given to others from which on a warning mentions it."""

RECORDING = 0.05
"""Share of a sample from which on a warning mentions the cost of recording."""

HANGS_TOGETHER = 0.2
"""Autocorrelation from which on neighbouring samples are not independent."""


def cautions(
    result: Result,
    study: Study,
    cells: Cells,
    compared: Sequence[Compared],
    control: ControlFound | None,
) -> tuple[str, ...]:
    """All warnings, as sentences without a full stop; warnings about the most figures come
    first.
    """
    shown = [cell for cell in cells.values() if _is_shown(cell, study)]
    return (
        *_of_control(study, control),
        *_of_trials(result.trials),
        *_of_load(result),
        *(str(problem) for problem in result.problems),
        *of_failures(shown),
        *_of_blocks(result, study),
        *_of_tests(study.design, compared),
        *_of_samples(shown),
    )


def _of_control(study: Study, control: ControlFound | None) -> Iterator[str]:
    if control is None:
        if study.design.comparisons:
            yield "no environment was measured twice, so the noise of this machine is unknown"
        return
    for found in control.different:
        yield f"the machine differs from itself: {found}"
    if control.untested:
        yield (
            f"{_counted(control.untested, 'cell')} of the A/A control had too few blocks for a "
            "test; the largest difference is shown without a claim"
        )


def emulated_in(trials: Sequence[StoredTrial]) -> list[str]:
    """Environments in which a trial ran on processors that QEMU emulated."""
    return sorted(
        {
            stored.trial.environment.removesuffix(control_name(""))
            for stored in trials
            if stored.trial.conditions.get(Condition.EMULATED) is True
        }
    )


def _of_trials(trials: Sequence[StoredTrial]) -> Iterator[str]:
    """Warnings about the machine's condition during the measurement."""
    conditions = [stored.trial.conditions for stored in trials]
    emulated = emulated_in(trials)
    if emulated:
        yield (
            f"QEMU emulates the processors of {_listed(emulated)}: values measured there are "
            "those of emulation, not of virtual machines"
        )
    stolen = [share for each in conditions if (share := _number(each, Condition.STEAL)) > STEAL]
    if stolen:
        yield (
            f"the hypervisor under this machine gave up to {max(stolen) * 100:.0f} % of processor "
            f"time to others, in {_counted(len(stolen), 'trial')} more than {STEAL * 100:.0f} %"
        )


def _of_load(result: Result) -> Iterator[str]:
    threads = result.manifest["host"]["threads"]
    loads = [_number(stored.trial.conditions, Condition.LOAD) for stored in result.trials]
    busy = [load for load in loads if load > threads]
    if busy:
        yield (
            f"the machine was busy: its load was up to {max(busy):.1f} with {threads} threads of "
            f"its processor, and above that number before {_counted(len(busy), 'trial')}"
        )


def of_failures(cells: Iterable[Gathered]) -> Iterator[str]:
    """Which trials failed, and their most common reason."""
    failed: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.failures:
            failed[cell.environment, cell.workload.name] = cell.failures
    for (environment, workload), failures in failed.items():
        reasons = Counter(failure.partition(": ")[2] or failure for failure in failures)
        reason, _ = reasons.most_common(1)[0]
        yield f"{_counted(len(failures), 'trial')} of {environment}, {workload} failed: {reason}"


def _of_blocks(result: Result, study: Study) -> Iterator[str]:
    design = study.design
    blocks = len({stored.trial.block for stored in result.trials})
    if blocks < design.trials:
        were = "was" if blocks == 1 else "were"
        yield f"{blocks} of {design.trials} blocks {were} measured: --resume measures the others"
    ending = result.manifest.get("ending")
    if design.most_trials is None or not isinstance(ending, dict):
        return
    reasons = Counter(str(why) for why in ending.get("reasons", {}).values())
    why = ", ".join(
        f"{_counted(count, 'comparison')} {reason}" for reason, count in reasons.items()
    )
    cap = "their cap of" if blocks >= design.most_trials else f"{blocks} of at most"
    yield (
        f"blocks stopped at {cap} {design.most_trials} ({why or 'no comparison was decided'}); the "
        "intervals are those of a study that looked at its data, and there are no p values"
    )


def _of_tests(design: Design, compared: Sequence[Compared]) -> Iterator[str]:
    few = [each for each in compared if each.verdict is Verdict.TOO_FEW]
    if not few:
        return
    tests = sum(each.p_signed_rank is not None for each in compared)
    pairs = sorted({each.pairs for each in few})
    correction = FAMILIES[design.correction].value
    yield (
        f"{_listed([str(each) for each in pairs])} {'block is' if pairs == [1] else 'blocks are'} "
        f"too few for any claim in {_counted(len(few), 'comparison')}, whatever they are, at "
        f"{design.alpha:g}"
        + (f" after {correction}'s correction for {tests} tests" if tests > 1 else "")
        + (
            ": measure more blocks, or ask fewer questions"
            if design.correction is Correction.BENJAMINI_HOCHBERG or tests <= 1
            else ": measure more blocks, ask fewer questions, or correct as sweeps are "
            "(benjamini-hochberg)"
        )
    )


def _of_samples(cells: Sequence[Gathered]) -> Iterator[str]:
    trials = {cell.label: list(cell.trials.values()) for cell in cells if cell.pooled}
    together = {
        label: float(np.median([each.autocorrelation for each in values]))
        for label, values in trials.items()
        if values
    }
    marked = [
        label
        for label, value in together.items()
        if value > max(HANGS_TOGETHER, 2 / np.sqrt(trials[label][0].samples))
    ]
    if marked:
        yield (
            f"neighbouring samples are correlated in {_counted(len(marked), 'cell')} "
            f"(autocorrelation up to {max(together[label] for label in marked):.2f}): intervals of "
            "percentiles within a trial are too narrow there; comparisons count trials and stay "
            "correct"
        )
    recorded: dict[str, list[float]] = defaultdict(list)
    for label, values in trials.items():
        for each in values:
            if each.recording is not None and each.recording > RECORDING:
                recorded[label].append(each.recording)
    if recorded:
        worst = max(recorded, key=lambda label: max(recorded[label]))
        yield (
            f"recording took more than {RECORDING * 100:.0f} % of a sample in "
            f"{_counted(len(recorded), 'cell')}, most in {worst} "
            f"({max(recorded[worst]) * 100:.0f} %): it is not subtracted"
        )


def _is_shown(cell: Gathered, study: Study) -> bool:
    """Whether a cell belongs to the study's own environments; the control is shown separately."""
    return cell.environment in {each.name for each in study.environments}


def _number(conditions: dict[str, object], name: str) -> float:
    value = conditions.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
