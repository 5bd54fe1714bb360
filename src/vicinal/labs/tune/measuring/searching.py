"""A search from its file to its result: tries knobs, creates nodes, runs trials, restores the
knobs.
"""

import json
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import read_text
from vicinal.labs.provenance import now
from vicinal.labs.study.file.json_form import study_to_json
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.result.manifest import make_manifest
from vicinal.labs.study.running.ready import check_ready
from vicinal.labs.study.running.record import differences
from vicinal.labs.study.running.trial import Limits, expected_seconds
from vicinal.labs.study.running.view import View
from vicinal.labs.study.workloads.driver import Driver, Tools
from vicinal.labs.tune.knobs.variables import UNSET
from vicinal.labs.tune.measuring.environment import running_environment
from vicinal.labs.tune.measuring.folder import SCHEMA, SPEC, SearchFolder, read_manifest
from vicinal.labs.tune.measuring.knobs import SearchKnobs, find_knobs, rows_of, taken_from
from vicinal.labs.tune.measuring.links import LinkWatch
from vicinal.labs.tune.measuring.measuring import Bench
from vicinal.labs.tune.measuring.phases import study_of
from vicinal.labs.tune.measuring.progress import Progress
from vicinal.labs.tune.search.blocks import Budget
from vicinal.labs.tune.search.explain import explain
from vicinal.labs.tune.search.finding import Found, find, trials_needed
from vicinal.labs.tune.search.space import Point, Space, Value
from vicinal.labs.tune.search.spec import FORM, Spec, parse_spec
from vicinal.labs.tune.search.trial import Trial
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.state_directory import sole_command


@dataclass(frozen=True)
class Search:
    """A search as the user requested it."""

    path: Path
    """The tuning file."""
    text: str
    spec: Spec
    """The file's search, with the command line's values instead of the file's."""
    study: Study
    tools: Tools
    asked: Mapping[str, Any]
    """The command line's values, which replace the file's."""


def read_search(path: Path, *, trials: int | None = None, seed: int | None = None) -> Search:
    """Read the search of a tuning file; `trials` and `seed` replace the file's.

    Raises VicinalError, with the line, if the file is missing or invalid.
    """
    text = read_text(FORM, path)
    spec = parse_spec(path, text)
    plan = spec.plan
    if trials is not None:
        plan = replace(plan, budget=Budget(trials=trials))
    if seed is not None:
        plan = replace(plan, seed=seed)
    spec = replace(spec, plan=plan)
    for name, tool in spec.tools.items():
        if not tool.exists():
            raise VicinalError(f"{path}: {tool} does not exist", f"correct tools.{name}")
    asked = {"spec": str(path.absolute()), "trials": trials, "seed": seed}
    return Search(path, text, spec, study_of(path, spec), Tools(dict(spec.tools)), asked)


def knobs_of(search: Search, applier: Applier) -> SearchKnobs:
    """The search's knobs on this host; nothing is set. Raises VicinalError as find_knobs()."""
    return find_knobs(applier, search.spec.knobs, search.study.environments[0], os.environ)


def check_launches(search: Search, drivers: Mapping[str, Driver]) -> None:
    """Raise VicinalError if this host cannot run the environment or a workload."""
    for name, why in check_ready(search.study, search.tools, drivers).items():
        raise VicinalError(f"{name} cannot be measured here", why)


def check_budget(space: Space, spec: Spec) -> None:
    """Raise VicinalError if the budget has too few trials for any claim."""
    trials, needed = spec.plan.budget.trials, trials_needed(space, spec.plan)
    if trials is not None and trials < needed:
        raise VicinalError(
            f"a budget of {trials} trials is too small for this search, which needs {needed}",
            "raise the budget, or use fewer knobs, values, objectives or phases",
        )


def run_search(
    search: Search,
    folder: Path,
    applier: Applier,
    state: Path,
    *,
    resume: bool,
    again: Sequence[str],
    view: View,
    drivers: Mapping[str, Driver],
    limits: Limits | None = None,
) -> Found:
    """Run the search, keep each trial in `folder`, and restore the host at the end.

    `state` is the directory of the applier's journal. `again` is the command line that continues
    the search; `resume` continues one. Raises VicinalError if the search cannot begin or continue.
    """
    knobs = knobs_of(search, applier)
    check_launches(search, drivers)
    with ExitStack() as stack:
        if knobs.host:
            stack.enter_context(sole_command(state))
            for line in applier.recover():
                view.warn(line)
        space = Space.of(rows_of(applier, knobs, search.spec.knobs), knobs.present())
        check_budget(space, search.spec)
        manifest = _manifest(search, space)
        begin = _resumed if resume else _begun
        kept, manifest, notes = begin(search, folder, manifest)
        writer = stack.enter_context(kept)
        view.say(f"the result goes to {folder}")
        for note in notes:
            view.warn(f"changed since the search began: {note}")
        stack.enter_context(taken_from(os.environ, list(knobs.variables)))
        work = stack.enter_context(applier.temporarily()) if knobs.host else None
        environment = search.study.environments[0]
        running = stack.enter_context(
            running_environment(
                environment, search.spec.name, manifest["clusters"], list(again), view
            )
        )
        writer.amend(manifest | {"environment": running.opened.facts()})
        expected = max(map(expected_seconds, search.study.workloads))
        progress = Progress(space, search.spec.plan, view, expected)
        recorded = writer.trials()
        for trial in recorded:
            progress.add(trial)
        bench = Bench(
            search.study,
            search.spec.plan.by_phase,
            knobs,
            running,
            work,
            LinkWatch(applier.host.network, knobs.interfaces),
            drivers,
            search.tools,
            limits or Limits(),
            writer,
            progress,
        )

        def record(trial: Trial) -> None:
            writer.add(trial)
            progress.add(trial)

        found = find(space, search.spec.plan, bench.measure, recorded=recorded, record=record)
        writer.finish(result_of(search, found))
        return found


def result_of(search: Search, found: Found) -> dict[str, Any]:
    """The contents of a folder's result.json, without its schema."""
    values = study_to_json(search.study)
    return {
        "name": search.spec.name,
        "title": search.spec.title,
        "ended": now(),
        "workloads": {each["name"]: each for each in values["workloads"]},
        **found.to_dict(),
        "instructions": [each.to_dict() for each in instructions(found)],
        "explanation": explain(found).splitlines(),
    }


def _manifest(search: Search, space: Space) -> dict[str, Any]:
    study = search.study
    manifest = make_manifest(
        study_to_json(study), [study.environments[0].mpi], seed=search.spec.plan.seed
    )
    return manifest | {
        "schema": SCHEMA,
        "name": search.spec.name,
        "title": search.spec.title,
        "asked": dict(search.asked),
        "plan": search.spec.plan.to_dict(),
        "knobs": {name: list(row) for name, row in space.knobs.items()},
        "present": space.setting(space.present),
        "clusters": f"tune-{secrets.token_hex(4)}",
    }


_Kept = tuple[SearchFolder, dict[str, Any], list[str]]


def _begun(search: Search, folder: Path, manifest: dict[str, Any]) -> _Kept:
    return SearchFolder.begin(folder, manifest, search.text), manifest, []


def _resumed(search: Search, folder: Path, manifest: dict[str, Any]) -> _Kept:
    """The folder's writer, its manifest, and the differences of the host since the search
    began.
    """
    before = read_manifest(folder)
    writer = SearchFolder(folder)
    try:
        _check_same(search, folder, before, manifest)
        notes = differences(before, manifest)
        before["resumed"] = [
            *before.get("resumed", ()),
            {"at": manifest["created"], "versions": manifest["versions"], "differences": notes},
        ]
        return writer, before, notes
    except BaseException:
        writer.close()
        raise


def _check_same(
    search: Search, folder: Path, before: Mapping[str, Any], manifest: Mapping[str, Any]
) -> None:
    """Raise VicinalError if the folder has a different search."""
    if before["name"] != search.spec.name:
        raise VicinalError(
            f"{folder} has the search {before['name']!r}, not {search.spec.name!r}",
            "choose another folder with --output",
        )
    if before["present"] != manifest["present"]:
        changed = [
            f"{name} was {value}, and is {manifest['present'].get(name)}"
            for name, value in before["present"].items()
            if manifest["present"].get(name) != value
        ]
        raise VicinalError(
            "the present setting has changed since the search began: "
            f"{', '.join(changed) or 'it has more knobs'}",
            "restore it, or start again in another folder with --output",
        )
    fresh = _plain(manifest)
    changed = [key for key in ("study", "plan", "knobs") if before[key] != fresh[key]]
    if changed:
        raise VicinalError(
            f"the search {search.spec.name!r} has changed since {folder} began: its "
            f"{' and '.join(changed)} changed",
            f"start again in another folder with --output, or restore the file from {SPEC}",
        )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON returns them."""
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found


@dataclass(frozen=True)
class Instruction:
    """One setting, and how to apply it."""

    phases: Sequence[str]
    """The phases of the setting."""
    setting: Mapping[str, Value]
    """The values of the knobs that change."""
    command: str | None
    """A shell command; None if the host's knobs stay."""
    shell: Sequence[str]
    """Lines for a job's shell: exports of variables."""

    to_dict = asdict


def instructions(found: Found) -> list[Instruction]:
    """One instruction for all phases, or one for each phase; none without a better setting."""
    choice = found.choice
    if choice.common is not None:
        chosen = [([each.phase for each in choice.phases], choice.common)]
    else:
        chosen = [([each.phase], each.choice) for each in choice.phases]
    return [
        _instruction(found.space, phases, point)
        for phases, point in chosen
        if found.space.changes(point)
    ]


def _instruction(space: Space, phases: Sequence[str], point: Point) -> Instruction:
    setting = {name: after for name, (_, after) in space.changes(point).items()}
    host = [f"{name}={value}" for name, value in setting.items() if "/" in name]
    return Instruction(
        phases,
        setting,
        shlex.join(["vicinal", "tune", "apply", *host]) if host else None,
        [_line(name, value) for name, value in setting.items() if "/" not in name],
    )


def _line(name: str, value: Value) -> str:
    return f"unset {name}" if value == UNSET else f"export {name}={shlex.quote(str(value))}"
