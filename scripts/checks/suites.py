"""Suites of tests, as tests/suites.toml names them."""

import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAP = "tests/suites.toml"
TIERS = ("common", "long", "release")


class CheckError(Exception):
    """Lines for the user: what happened, why, and the remedy."""


@dataclass(frozen=True)
class Suite:
    """One table of tests/suites.toml."""

    name: str
    tier: str
    """`common`: always; `long`: if CI selects it; `release`: only in `make check-all`."""
    seconds: int
    """Its measured time on two idle cores, by which CI fits suites into its time."""
    folders: tuple[str, ...]
    """Folders of tests that pytest runs."""
    mark: str
    """Which of these tests run: pytest's -m."""
    workers: int
    """Processes among which pytest-xdist divides the tests. 0 is pytest itself."""
    commands: tuple[tuple[str, ...], ...]
    """Commands instead of pytest, which run one after the other."""
    sources: tuple[str, ...]
    """Files and folders whose change selects the suite, besides its tests and their imports."""
    imports: bool
    """Whether a change of a module that its tests import selects it."""
    low_priority: bool
    """Whether it runs at low priority while other suites run."""


def read_suites(tree: Path) -> list[Suite]:
    """All suites, in the file's order. Raises CheckError with all mistakes of the file."""
    try:
        rows = tomllib.loads((tree / MAP).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CheckError(f"{MAP}: cannot be read: {error}. Mend the file") from error
    mistakes: list[str] = []
    suites = []
    for name, row in rows.items():
        suite = _suite(name, row, mistakes)
        if suite is not None:
            suites.append(suite)
            mistakes += [
                f"{name}: there is no {path}: name a file or folder of this tree"
                for path in (*suite.folders, *suite.sources)
                if not (tree / path).exists()
            ]
    if mistakes:
        raise CheckError("\n".join(f"{MAP}: {mistake}" for mistake in mistakes))
    return suites


_KEYS = {
    "tier": str,
    "seconds": int,
    "folders": list,
    "mark": str,
    "workers": int,
    "commands": list,
    "sources": list,
    "imports": bool,
    "low_priority": bool,
}


def _suite(name: str, row: Any, mistakes: list[str]) -> Suite | None:
    if not isinstance(row, dict):
        mistakes.append(f"{name}: is no table: write [{name}] and its keys below")
        return None
    found = [
        f"{name}: '{key}' is no key: choose from {', '.join(_KEYS)}" for key in row.keys() - _KEYS
    ]
    found += [
        f"{name}: {key} = {row[key]!r} is no {kind.__name__}"
        for key, kind in _KEYS.items()
        if key in row and type(row[key]) is not kind
    ]
    if row.get("tier") not in TIERS:
        found.append(f"{name}: tier: choose from {', '.join(TIERS)}")
    if "seconds" not in row:
        found.append(f"{name}: seconds: say how long it takes on two idle cores")
    if bool(row.get("folders")) == bool(row.get("commands")):
        found.append(f"{name}: give either folders, which pytest runs, or commands")
    mistakes += found
    if found:
        return None
    return Suite(
        name=name,
        tier=row["tier"],
        seconds=row["seconds"],
        folders=tuple(row.get("folders", ())),
        mark=row.get("mark", ""),
        workers=row.get("workers", 0),
        commands=tuple(tuple(shlex.split(each)) for each in row.get("commands", ())),
        sources=tuple(row.get("sources", ())),
        imports=row.get("imports", True),
        low_priority=row.get("low_priority", False),
    )


def choose(suites: list[Suite], names: list[str]) -> list[Suite]:
    """The suites of these names, in the file's order. Raises CheckError for unknown names.

    A name also stands for all suites that begin with it and a hyphen: guests for guests-pair.
    """
    chosen = {
        each.name for each in suites for name in names if each.name == name or _begins(each, name)
    }
    wrong = [
        name
        for name in names
        if not any(each == name or each.startswith(f"{name}-") for each in chosen)
    ]
    if wrong:
        raise CheckError(
            f"no suite is called {', '.join(map(repr, wrong))}: choose from "
            f"{', '.join(suite.name for suite in suites)}"
        )
    return [suite for suite in suites if suite.name in chosen]


def _begins(suite: Suite, name: str) -> bool:
    return suite.name.startswith(f"{name}-")


def is_below(path: str, folder: str) -> bool:
    """Whether a path of the tree is this file or folder, or lies below it."""
    return path == folder or path.startswith(f"{folder}/")
