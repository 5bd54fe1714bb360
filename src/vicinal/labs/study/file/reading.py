"""Reads a study file: YAML, checked against its schema. Errors name the line.

study = read_study(Path("study.yaml"))
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.yaml import Form, line_of, load_parts, mark_faults, read_text, to_text
from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Correction,
    Design,
    Quantity,
    Statistic,
    Study,
    Workload,
)
from vicinal.labs.study.file.reading_environments import (
    Loader,
    paragraph,
    plain,
    read_environment,
    take_environments,
    text_of,
)
from vicinal.labs.study.file.reading_published import check_names, read_published
from vicinal.labs.study.file.reading_sizes import read_sizes

FORM = Form(
    kind="study file",
    file=Path(__file__).with_name("schema.json"),
    documentation="docs/reference/study-file.md",
    begin="start from the output of `vicinal study show quick --yaml`, "
    "or see docs/reference/study-file.md",
)


def read_study(path: Path) -> Study:
    """Read the study in a file.

    Raises a VicinalError that names file, line and remedy of all errors in the file.
    """
    return parse_study(path, read_text(FORM, path))


def parse_study(path: Path, text: str, loader: Loader | None = None) -> Study:
    """Read a study from a file's text; relative paths in it start at the folder of `path`.

    `loader` finds the values of this text, and of a file of environments that it names.
    """
    faults, loader = Faults(), loader or Loader()
    return _checked(path, loader.load(FORM, path, text, faults), faults, loader)


def study_from_values(path: Path, values: Any) -> Study:
    """Read a study from a file's values, without its text; errors then name no lines.

    The values must contain complete environments.
    """
    faults = Faults()
    mark_faults(FORM, path, values, faults)
    if "environments_from" in values:
        raise VicinalError(
            f"{path}: environments_from is not possible here: the study has no file",
            "write out the environments",
        )
    return _checked(path, values, faults, Loader())


def whole_text(path: Path) -> str:
    """The text of a study's file, including the environments that it takes from another file.

    Raises a VicinalError that names all errors in the file.
    """
    text = read_text(FORM, path)
    faults = Faults()
    values = load_parts(FORM, path, text, faults)
    if "environments_from" not in values:
        return text
    take_environments(path, values, faults, Loader())
    faults.check()
    del values["environments_from"]
    keys = FORM.schema["$defs"]["environment"]["properties"]
    values["environments"] = [
        {key: plain(each[key]) for key in keys if key in each} for each in values["environments"]
    ]
    return to_text(values)


def _checked(path: Path, values: Any, faults: Faults, loader: Loader) -> Study:
    """The study with these values. Raises a VicinalError that names all errors."""
    faults.attempt(take_environments, path, values, faults, loader)
    study = faults.attempt(_build, path, values, faults)
    faults.check()
    return study


def _build(path: Path, values: Any, faults: Faults) -> Study:
    """Build the study; collect errors, and put FAULTY where a part is wrong."""
    parts: dict[str, Any] = {}
    for key, read in (("environments", read_environment), ("workloads", _workload)):
        found = []
        for each in faults.attempt(lambda key=key: list(values[key]), otherwise=[]):
            found.append(faults.attempt(read, path, each, faults))
        parts[key] = tuple(found)
        faults.extend(check_names(path, values[key]))
    study = Study(
        name=faults.attempt(lambda: str(values["name"])),
        title=faults.attempt(lambda: str(values["title"])),
        question=faults.attempt(lambda: paragraph(values["question"])),
        source=faults.attempt(lambda: str(values["source"])),
        environments=parts["environments"],
        workloads=parts["workloads"],
        design=faults.attempt(_design, path, values["design"], faults),
        notes=faults.attempt(lambda: tuple(map(paragraph, values.get("notes", ())))),
        adaptations=faults.attempt(_adaptations, values),
        unavailable=faults.attempt(
            lambda: {str(name): str(why) for name, why in values.get("unavailable", {}).items()}
        ),
    )
    return read_published(path, values, study, faults)


def _adaptations(values: Any) -> tuple[Adaptation, ...]:
    return tuple(
        Adaptation(str(each["what"]), str(each["why"])) for each in values.get("adaptations", ())
    )


def _workload(path: Path, values: Any, faults: Faults) -> Workload:
    sizes = faults.attempt(read_sizes, path, values)
    seconds = faults.attempt(_finite, path, values, "seconds", 1.0)
    name = str(values["name"])
    return Workload(
        name=name,
        title=str(values.get("title", name)),
        driver=str(values["driver"]),
        operation=str(values["operation"]),
        quantity=Quantity(values["quantity"]),
        sizes=sizes,
        ranks=int(values.get("ranks", 2)),
        samples=int(values.get("samples", 1000)),
        seconds=seconds,
        statistics=tuple(
            Statistic(each) for each in values.get("statistics", (Statistic.MEDIAN, Statistic.P99))
        ),
        options=plain(values.get("options", {})),
        unsupported=text_of(values, "unsupported"),
        stands_for=text_of(values, "stands_for"),
    )


def _design(path: Path, values: Any, faults: Faults) -> Design:
    def number(key: str, default: float) -> float:
        return faults.attempt(_finite, path, values, key, default)

    design = Design(
        comparisons=tuple(
            Comparison(str(each["base"]), str(each["test"]), str(each.get("title", "")))
            for each in values["comparisons"]
        ),
        trials=int(values.get("trials", 7)),
        most_trials=int(values["most_trials"]) if "most_trials" in values else None,
        precision=number("precision", 0.05),
        alpha=number("alpha", 0.05),
        margin=number("margin", 0.03),
        correction=Correction(values.get("correction", Correction.HOLM)),
        control=values.get("control"),
    )
    if design.most_trials is not None and design.most_trials < design.trials:
        raise VicinalError(
            f"{line_of(path, values, 'most_trials')}: most_trials is {design.most_trials}, less "
            f"than trials ({design.trials})",
            "give at least as many as trials",
        )
    return design


def _finite(path: Path, values: Mapping[str, Any], key: str, default: float) -> float:
    """A number of a file, which YAML allows to be infinite or not a number."""
    number = float(values.get(key, default))
    if not math.isfinite(number):
        raise VicinalError(f"{line_of(path, values, key)}: {key} is not finite", "give a number")
    return number
