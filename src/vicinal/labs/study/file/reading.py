"""Reading a study file: YAML, checked against its schema; errors say in which line.

study = read_study(Path("study.yaml"))
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import FAULTY, Faults
from vicinal.base.yaml import Form, line_of, load_parts, mark_faults, read_text
from vicinal.cluster.file.reading import part_cluster
from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Correction,
    Design,
    Environment,
    Quantity,
    Statistic,
    Study,
    Workload,
)
from vicinal.labs.study.file.reading_published import check_names, read_published
from vicinal.labs.study.file.reading_sizes import read_sizes
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi

FORM = Form(
    kind="study file",
    file=Path(__file__).with_name("schema.json"),
    documentation="docs/reference/study-file.md",
    begin="begin with what `vicinal study show quick --yaml` prints, "
    "or see docs/reference/study-file.md",
)


def read_study(path: Path) -> Study:
    """The study that a file describes.

    Raises VicinalError with file, line and remedy, for all that is wrong in it.
    """
    return parse_study(path, read_text(FORM, path))


def parse_study(path: Path, text: str) -> Study:
    """The same of a file's text; relative paths in it begin where `path` lies."""
    faults = Faults()
    return _checked(path, load_parts(FORM, path, text, faults), faults)


def study_from_values(path: Path, values: Any) -> Study:
    """The same of a file's values, without its text: errors then name no lines."""
    faults = Faults()
    mark_faults(FORM, path, values, faults)
    return _checked(path, values, faults)


def _checked(path: Path, values: Any, faults: Faults) -> Study:
    """The study of values, of which nothing is wrong. Raises VicinalError for all that is."""
    study = faults.attempt(_build, path, values, faults)
    faults.check()
    return study


def _build(path: Path, values: Any, faults: Faults) -> Study:
    """The study; what is wrong is collected, and FAULTY is in its place."""
    parts: dict[str, Any] = {}
    for key, read in (("environments", _environment), ("workloads", _workload)):
        found = []
        for each in faults.attempt(lambda key=key: list(values[key]), otherwise=[]):
            found.append(faults.attempt(read, path, each, faults))
        parts[key] = tuple(found)
        faults.extend(check_names(path, values[key]))
    study = Study(
        name=faults.attempt(lambda: str(values["name"])),
        title=faults.attempt(lambda: str(values["title"])),
        question=faults.attempt(lambda: _paragraph(values["question"])),
        source=faults.attempt(lambda: str(values["source"])),
        environments=parts["environments"],
        workloads=parts["workloads"],
        design=faults.attempt(_design, path, values["design"], faults),
        notes=faults.attempt(lambda: tuple(map(_paragraph, values.get("notes", ())))),
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


def _paragraph(text: str) -> str:
    """Text that a file may have in several lines."""
    return " ".join(str(text).split())


def _text(values: Any, key: str) -> str | None:
    return _paragraph(values[key]) if key in values else None


def _environment(path: Path, values: Any, faults: Faults) -> Environment:
    # What is a cluster is for the cluster file's reader to say; it is made of the same values.
    sound = faults.attempt(part_cluster, path, values["cluster"]) is not FAULTY
    faults.extend(_path_faults(path, values))
    name = str(values["name"])
    return Environment(
        name=name,
        title=str(values.get("title", name)),
        cluster=_with_whole_paths(path, plain(values["cluster"])) if sound else FAULTY,
        mpi=Mpi(values.get("mpi", Mpi.MPICH)),
        path=MessagePath(values.get("path", MessagePath.REGION)),
        progress=Progress(values["progress"]) if "progress" in values else None,
        cma=bool(values.get("cma", True)),
        variables={str(key): str(value) for key, value in values.get("variables", {}).items()},
        unsupported=_text(values, "unsupported"),
        stands_for=_text(values, "stands_for"),
    )


def _path_faults(path: Path, values: Any) -> Iterator[VicinalError]:
    """Errors for keys that mean nothing with an environment's path."""
    name = str(values["name"])
    if "cma" in values and values.get("path") != MessagePath.SHARED_MEMORY:
        yield VicinalError(
            f"{line_of(path, values, 'cma')}: {name} has cma, and its path is not shared-memory",
            "leave it out, or choose the path shared-memory",
        )
    if "progress" in values and values.get("path", MessagePath.REGION) != MessagePath.REGION:
        yield VicinalError(
            f"{line_of(path, values, 'progress')}: {name} has progress, which is the provider's, "
            "and its path is not region",
            "leave it out, or choose the path region",
        )


def _with_whole_paths(path: Path, cluster: dict[str, Any]) -> dict[str, Any]:
    """A cluster whose directories of this host no longer begin where the file lies."""
    base = path.parent.absolute()
    for part in (cluster, *cluster["nodes"]):
        if "mounts" in part:
            part["mounts"] = [_whole(base, mount) for mount in part["mounts"]]
        if "files" in part.get("image", {}):
            files = part["image"]["files"]
            part["image"]["files"] = {_whole(base, name): to for name, to in files.items()}
    return cluster


def _whole(base: Path, text: str) -> str:
    """SOURCE, or SOURCE:DESTINATION, with a source that begins at the root."""
    source, colon, rest = text.partition(":")
    return f"{os.path.normpath(base / source)}{colon}{rest}"


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
        unsupported=_text(values, "unsupported"),
        stands_for=_text(values, "stands_for"),
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
            f"{line_of(path, values, 'most_trials')}: most_trials is {design.most_trials}, and "
            f"trials is {design.trials}",
            "give at least as many",
        )
    return design


def _finite(path: Path, values: Mapping[str, Any], key: str, default: float) -> float:
    """A number of a file, which YAML lets be none."""
    number = float(values.get(key, default))
    if not math.isfinite(number):
        raise VicinalError(f"{line_of(path, values, key)}: {key} is no number", "give one")
    return number


def plain(values: Any) -> Any:
    """Values as JSON has them, without what the YAML reader knows of their lines."""
    if isinstance(values, Mapping):
        return {str(key): plain(value) for key, value in values.items()}
    if isinstance(values, str):
        return str(values)
    if isinstance(values, bool) or values is None:
        return values
    if isinstance(values, int):
        return int(values)
    if isinstance(values, float):
        return float(values)
    if isinstance(values, Iterable):
        return [plain(value) for value in values]
    return str(values)  # such as a date
