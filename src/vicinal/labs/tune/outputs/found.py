"""The setting that a search found, from the folder of its result."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Setting
from vicinal.labs.tune.settings.boot_unit import check_setting


@dataclass(frozen=True)
class FoundSetting:
    """What to set, and what was there when it was searched for."""

    setting: Setting
    present: Setting


def read_found(folder: Path, phase: str | None) -> FoundSetting:
    """The better setting that a search found: of this phase, or the one for all.

    Raises VicinalError where there is none, where each phase has its own and none is named, and
    for what is no result.
    """
    # Loaded here: the rest of the command line does not wait for it.
    from vicinal.labs.tune.measuring.folder import read_result

    result = read_result(folder)
    try:
        phases = {each["phase"]: each["setting"] for each in result["phases"]}
        present = check_setting(result["present"], str(folder))
        chosen = _choose(folder, phases, result["common"], phase)
        setting = check_setting(chosen, str(folder))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VicinalError(
            f"{folder} has no result of a search", "name the folder of a `vicinal tune run`"
        ) from error
    if setting == present:
        raise VicinalError(
            f"{folder} has no better setting than the one that there was"
            + (f" for {phase}" if phase else ""),
            "there is nothing to be set; --setting writes any setting",
        )
    return FoundSetting(setting, present)


def _choose(folder: Path, phases: dict[str, Any], common: Any, phase: str | None) -> Any:
    named = ", ".join(phases)
    if phase is None:
        if common is None:
            raise VicinalError(
                f"in {folder} each phase has a setting of its own",
                f"choose one with --phase: {named}",
            )
        return common
    if phase not in phases:
        raise VicinalError(f"{folder} has no phase {phase}", f"it has {named}")
    return phases[phase]
