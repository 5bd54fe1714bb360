"""The result of a search, for the studies' report: from the folder of a `vicinal tune run`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.labs.report.tuned import Gain, Searched, Tuned
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.tune.measuring.folder import TRIALS, read_manifest, read_result
from vicinal.labs.tune.search.choosing import Outcome
from vicinal.labs.tune.search.mechanism import interrupts_per_second
from vicinal.labs.tune.search.objective import Objective
from vicinal.labs.tune.search.trial import Stage, Trial, read_trials


def read_searched(folder: Path) -> Searched:
    """The report's data of a search. Raises VicinalError if the folder has no result of a
    search.
    """
    manifest, found = read_manifest(folder), read_result(folder)
    try:
        trials = read_trials(folder / TRIALS)
        return Searched(
            name=str(found["name"]),
            title=str(found["title"]),
            ended=str(found["ended"]),
            host=_host(manifest.get("host") or {}),
            emulated=bool((manifest.get("environment") or {}).get("emulated")),
            trials=int(found["trials"]),
            knobs=tuple(found["knobs"]),
            phases=tuple(_phase(found, each, trials) for each in found["phases"]),
        )
    except OSError as error:
        raise VicinalError(
            f"{error.filename}: {describe_os_error(error)}",
            "name the folder of a `vicinal tune run` that has ended",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VicinalError(
            f"{folder} has no result of a search", "name the folder of a `vicinal tune run`"
        ) from error


def _host(host: Mapping[str, Any]) -> str:
    virtual = ", a virtual machine itself" if host.get("virtual") else ""
    return f"{host['cpu']}{virtual}" if host.get("cpu") else ""


def _phase(found: Mapping[str, Any], phase: Mapping[str, Any], trials: Sequence[Trial]) -> Tuned:
    name, present = phase["phase"], found["present"]
    better = phase["outcome"] == Outcome.BETTER
    rows = [each for each in found["comparisons"] if each["phase"] == name]
    # Without a better setting, the finalists show why.
    settings = [phase["setting"]] if better else found["finalists"][name]
    gains = [_gain(each) for each in rows if each["point"] in settings]
    if phase["outcome"] == Outcome.NO_BETTER:
        gains = _best(gains)
    changed = {knob: (present[knob], value) for knob, value in phase["setting"].items() if better}
    workload = found.get("workloads", {}).get(name, {})
    mechanism = found["mechanisms"].get(name)
    confirmed = [
        each
        for each in trials
        if (each.phase, each.stage) == (name, Stage.CONFIRMING) and not each.failed
    ]
    return Tuned(
        phase=name,
        workload=str(workload.get("title") or name),
        outcome=str(phase["outcome"]),
        changed={knob: pair for knob, pair in changed.items() if pair[0] != pair[1]},
        gains=tuple(gains),
        interrupts_before=_interrupts(confirmed, present),
        interrupts_after=_interrupts(confirmed, phase["setting"]) if better else None,
        mechanism=None if mechanism is None else bool(mechanism["established"]),
        why="" if mechanism is None else str(mechanism["reason"]),
        vectors={
            str(each["vector"]): float(each["ratio"]["value"])
            for each in (mechanism or {}).get("changes", ())
        },
    )


def _gain(row: Mapping[str, Any]) -> Gain:
    objective = Objective(row["objective"])
    return Gain(
        objective=objective.label,
        unit=objective.unit,
        before=Estimate(**row["present"]),
        after=Estimate(**row["ours"]),
        ratio=Estimate(**row["ratio"]),
        p_value=float(row["adjusted"]),
        verdict=str(row["verdict"]),
        blocks=int(row["blocks"]),
        setting=dict(row["point"]),
        lower_is_better=objective.lower_is_better,
    )


def _best(gains: Sequence[Gain]) -> list[Gain]:
    """For each objective, the gain that looked best."""
    found: dict[str, Gain] = {}
    for each in gains:
        best = found.setdefault(each.objective, each)
        lower = each.ratio.value < best.ratio.value
        if each.ratio.value != best.ratio.value and lower == each.lower_is_better:
            found[each.objective] = each
    return list(found.values())


def _interrupts(trials: Sequence[Trial], setting: Mapping[str, Any]) -> Estimate | None:
    """The median of interrupts per second over trials of a setting; None if they were not
    counted.
    """
    rates = [interrupts_per_second(each.evidence) for each in trials if each.setting == setting]
    counted = [each for each in rates if each is not None]
    return median_estimate(counted) if counted and len(counted) == len(rates) else None
