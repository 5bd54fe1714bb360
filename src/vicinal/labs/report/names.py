"""Names on the page and of files."""

import re
from collections.abc import Collection
from dataclasses import replace

from vicinal.labs.study.file.model import Study

EMULATED = "-emulated"
"""Ends the names of plots of emulated environments."""

_MARK = " (emulated)"

_NO_NAME = re.compile(r"[^a-z0-9]+")


def slug(name: str) -> str:
    """The name as a part of names of files and anchors."""
    return _NO_NAME.sub("-", name.lower()).strip("-") or "x"


def called_so(study: Study, emulated: Collection[str]) -> Study:
    """The study, with emulation in the titles of emulated environments."""
    environments = tuple(
        replace(each, title=f"{each.title}{_MARK}")
        if each.name in emulated and "emulated" not in each.title
        else each
        for each in study.environments
    )
    return replace(study, environments=environments)


def unmarked(title: str) -> str:
    """The title of an environment, for figures that were published of a real one."""
    return title.removesuffix(_MARK)
