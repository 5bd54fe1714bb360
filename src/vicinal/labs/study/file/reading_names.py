"""Names in a study file: each there once, and what is named there."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.base.yaml import line_of


def check_names(path: Path, parts: Any) -> Iterator[VicinalError]:
    """Errors, with the line, where two environments or workloads have one name."""
    seen = set()
    for each in parts:
        if each["name"] in seen:
            yield VicinalError(
                f"{line_of(path, each, 'name')}: {each['name']} is there twice",
                "give each a name of its own",
            )
        seen.add(each["name"])


def check_known(place: str, what: str, name: str, known: Iterable[str]) -> None:
    """Raise VicinalError for a name that the study does not have."""
    names = list(known)
    if name not in names:
        raise unknown_name(place, what, name, names)


def unknown_name(place: str, what: str, name: str, known: Iterable[str]) -> VicinalError:
    """The error for a name that the study does not have."""
    return VicinalError(f"{place}: there is no {what} {name}", nearest(name, known))
