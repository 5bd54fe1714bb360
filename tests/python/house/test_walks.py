"""docs/explanation/walks.md names only files and functions that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
PAGE = TREE / "docs/explanation/walks.md"

WALK = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FOLDER = re.compile(r"Paths are\s+below\s+`([\w/]+)/`")
NAMED_FILE = re.compile(r"`([\w./-]+\.(?:py|c|h|sh|yaml))`")
NAMED = re.compile(r"`(?:([\w.]+)\(\)|([A-Z][a-z][A-Za-z]*))`")
"""Functions, which have parentheses, and classes."""
C_FUNCTION = re.compile(r"^(?=[A-Za-z_])[^\n;={(]*?(\w+)\([^;{}]*\)\n\{", re.MULTILINE)
C_ATTRIBUTE = re.compile(r"__attribute__\(\([^()]*(?:\([^()]*\)[^()]*)*\)\)\s*")
STEP = re.compile(r"^\d+\. ", re.MULTILINE)

STEPS_MAX = 14


def walks(page: str) -> list[tuple[str, str]]:
    return WALK.findall(page)


def file_of(name: str, folder: str) -> Path | None:
    """The file that a name means: below the walk's folder, or below the top of the tree."""
    files = (TREE / folder / name, TREE / name)
    return next((file for file in files if file.is_file()), None)


def python_definitions(path: Path) -> Iterator[str]:
    """The functions, classes and methods of a module, methods as Class.method."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            functions = (each for each in node.body if isinstance(each, ast.FunctionDef))
            yield from (f"{node.name}.{each.name}" for each in functions)


@cache
def definitions(path: Path) -> frozenset[str]:
    """What a file defines. A function of C begins a line, and its body follows."""
    if path.suffix == ".py":
        return frozenset(python_definitions(path))
    if path.suffix in (".c", ".h"):
        return frozenset(C_FUNCTION.findall(C_ATTRIBUTE.sub("", path.read_text())))
    return frozenset()


def faults(walk: str) -> Iterator[str]:
    """What a walk names and the tree does not have, in the order of the text."""
    folder = FOLDER.search(walk)
    files: list[Path] = []
    for part in re.split(r"\n\n|^(?=\d+\. )", walk, flags=re.MULTILINE):
        # First all files of the step: it may name a function before the function's file.
        for name in NAMED_FILE.findall(part):
            found = file_of(name, folder[1] if folder else "")
            if found is None:
                yield f"there is no file {name}"
            else:
                files.append(found)
        for name in map("".join, NAMED.findall(part)):
            if not any(name in definitions(file) for file in files):
                yield f"no file that is named so far defines {name}"


def test_faults_are_found() -> None:
    walk = (
        "Paths are below `src/vicinal/`.\n\n"
        "1. `main()` in `cli.py`, `gone.py`.\n"
        "2. `Call.gone()`, `bring_up()`, `Gone`.\n"
        "3. `down()`, `take_down()`, `cluster/manager.py`.\n"
        "4. `send_now()` (`provider/proto/send.c`).\n"
    )
    assert list(faults(walk)) == [
        "there is no file gone.py",
        "no file that is named so far defines Call.gone",
        "no file that is named so far defines bring_up",
        "no file that is named so far defines Gone",
        "no file that is named so far defines down",
    ]


def test_the_page_has_six_walks() -> None:
    found = walks(PAGE.read_text())
    assert len(found) == 6
    for title, walk in found:
        assert 8 <= len(STEP.findall(walk)) <= STEPS_MAX, title
        assert len(NAMED.findall(walk)) > 15, title
        assert FOLDER.search(walk), title


@pytest.mark.parametrize(("title", "walk"), walks(PAGE.read_text()))
def test_what_a_walk_names_exists(title: str, walk: str) -> None:
    assert not list(faults(walk)), title
