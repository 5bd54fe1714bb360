"""Reads the environments of a study file, and of a file that several studies share.

    environments_from: environments/p5.yaml
    environments:
      - from: native
      - {from: vm-here, title: the same, mpi: openmpi}

Before any other code reads the environments, `take_environments` replaces each `from` by the keys
of the named environment. So a study, and the result of its run, contain complete environments.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import FAULTY, Faults
from vicinal.base.wording import nearest
from vicinal.base.yaml import Form, line_of, load_parts, read_text
from vicinal.cluster.file.reading import part_cluster
from vicinal.labs.study.file.model import Environment
from vicinal.labs.study.file.reading_published import check_names
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi

FORM = Form(
    kind="file of environments",
    file=Path(__file__).with_name("schema.json"),
    documentation="docs/reference/study-file.md",
    begin="start with environments:, or see docs/reference/study-file.md",
    keys=("environments", "environments_from"),
)

_NEEDED = ("name", "cluster", "path")
"""Keys without which an environment cannot be checked."""


@dataclass(frozen=True)
class Loader:
    """Finds the values of files' texts, and keeps shared files of environments that it has read."""

    load: Callable[[Form, Path, str, Faults], Any] = load_parts
    """A function that returns the values of a file's text."""
    known: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By the real path of a file of environments without an error: its environments by name."""


def take_environments(
    path: Path, values: Any, faults: Faults, loader: Loader, around: tuple[str, ...] = ()
) -> None:
    """Complete the environments that have `from` with the keys of the named environments.

    `around` are the files whose chain of environments_from led here. Collects errors.
    """
    items = faults.attempt(lambda: list(values["environments"]), otherwise=[])
    if "environments_from" in values:
        where = faults.attempt(lambda: str(values["environments_from"]))
        known = faults.attempt(_named_in, path, values, loader, around)
    else:
        where = "this file"
        known = {}
        for each in items:
            with faults.catch():
                if "name" in each:
                    known.setdefault(str(each["name"]), each)
    for each in items:
        faults.attempt(_take, path, each, known, where)


def _named_in(
    path: Path, values: Any, loader: Loader, around: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """The complete environments of the file that `environments_from` names, by name.

    Raises a VicinalError that names all errors in that file.
    """
    position = line_of(path, values, "environments_from")
    file = path.parent / str(values["environments_from"])
    around = (*around, os.path.realpath(path))
    real = os.path.realpath(file)
    if real in around:
        raise VicinalError(
            f"{position}: {values['environments_from']} leads back to this file",
            "name a file of environments that does not name this file",
        )
    if real in loader.known:
        return loader.known[real]
    try:
        text = read_text(FORM, file)
    except VicinalError as error:
        raise VicinalError(
            f"{position}: {error.message}",
            f"give its path from the folder {path.absolute().parent}",
        ) from error
    faults = Faults()
    found = loader.load(FORM, file, text, faults)
    take_environments(file, found, faults, loader, around)
    for each in faults.attempt(lambda: list(found["environments"]), otherwise=[]):
        faults.attempt(read_environment, file, each, faults)
    faults.extend(check_names(file, found["environments"]))
    faults.check()
    for each in found["environments"]:
        # The study that uses the cluster may be in another folder.
        each["cluster"] = _with_whole_paths(file, plain(each["cluster"]))
    loader.known[real] = {str(each["name"]): each for each in found["environments"]}
    return loader.known[real]


def _take(
    path: Path, values: Any, known: Mapping[str, Any], where: str, around: tuple[Any, ...] = ()
) -> None:
    """Replace `from` of one environment by the keys that the environment does not have itself.

    `around` are the environments whose chain of `from` led here. Raises VicinalError.
    """
    if "from" not in values:
        return
    position, name = line_of(path, values, "from"), values.pop("from")
    taken: Mapping[str, Any] = dict.fromkeys(_NEEDED, FAULTY)
    try:
        if name not in known:
            raise VicinalError(
                f"{position}: there is no environment {name} in {where}",
                nearest(name, known) if known else "name a file that has it with environments_from",
            )
        if any(known[name] is each for each in (*around, values)):
            raise VicinalError(
                f"{position}: {name} takes its keys from itself",
                "write out one of the environments",
            )
        _take(path, known[name], known, where, (*around, values))
        taken = known[name]
    finally:
        for key in taken:
            values.setdefault(key, taken[key])


def read_environment(path: Path, values: Any, faults: Faults) -> Environment:
    """The environment with these values, which no longer contain `from`. Collects errors."""
    # The reader of cluster files checks the cluster, which has the same keys.
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
        unsupported=text_of(values, "unsupported"),
        stands_for=text_of(values, "stands_for"),
    )


def _path_faults(path: Path, values: Any) -> Iterator[VicinalError]:
    """Errors for keys that have no meaning on the environment's path."""
    name = str(values["name"])
    if "cma" in values and values.get("path") != MessagePath.SHARED_MEMORY:
        yield VicinalError(
            f"{line_of(path, values, 'cma')}: {name} has cma, but its path is not shared-memory",
            "leave out cma, or choose the path shared-memory",
        )
    if "progress" in values and values.get("path", MessagePath.REGION) != MessagePath.REGION:
        yield VicinalError(
            f"{line_of(path, values, 'progress')}: {name} has progress, a setting of the "
            "provider, but its path is not region",
            "leave out progress, or choose the path region",
        )


def _with_whole_paths(path: Path, cluster: dict[str, Any]) -> dict[str, Any]:
    """The cluster, with absolute paths for directories of this host that were relative to
    the file.
    """
    base = path.parent.absolute()
    for part in (cluster, *cluster["nodes"]):
        if "mounts" in part:
            part["mounts"] = [_whole(base, mount) for mount in part["mounts"]]
        if "files" in part.get("image", {}):
            files = part["image"]["files"]
            part["image"]["files"] = {_whole(base, name): to for name, to in files.items()}
    return cluster


def _whole(base: Path, text: str) -> str:
    """SOURCE, or SOURCE:DESTINATION, with an absolute source."""
    source, colon, rest = text.partition(":")
    return f"{os.path.normpath(base / source)}{colon}{rest}"


def paragraph(text: str) -> str:
    """Text of several lines as one line."""
    return " ".join(str(text).split())


def text_of(values: Any, key: str) -> str | None:
    """The text of a key, or None without the key."""
    return paragraph(values[key]) if key in values else None


def plain(values: Any) -> Any:
    """Values as JSON has them, without the line numbers of the YAML reader."""
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
