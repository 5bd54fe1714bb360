"""Names in a study file: each there once, and what is named there."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vicinal.errors import VicinalError
from vicinal.wording import nearest
from vicinal.yaml_file import line_of


def check_names(path: Path, parts: Any) -> None:
    """Raise VicinalError, with the line, where two environments or workloads have one name."""
    seen = set()
    for each in parts:
        if each["name"] in seen:
            raise VicinalError(
                f"{line_of(path, each, 'name')}: {each['name']} is there twice",
                "give each a name of its own",
            )
        seen.add(each["name"])


def check_known(place: str, what: str, name: str, known: Iterable[str]) -> None:
    """Raise VicinalError for a name that the study does not have."""
    names = list(known)
    if name not in names:
        raise VicinalError(f"{place}: there is no {what} {name}", nearest(name, names))
