"""Imports and includes between parts go one way, as docs/explanation/architecture.md says."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
SOURCES = TREE / "src"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)

BELOW_CLUSTER = {"base", "region", "host", "mpi"}
MAY_USE = {
    "base": set(),
    "region": {"base"},
    "host": {"base", "region"},
    "mpi": {"base", "region", "host"},
    "cluster": BELOW_CLUSTER,
    "launch": BELOW_CLUSTER | {"cluster"},
    "integrations": BELOW_CLUSTER | {"cluster"},
    "monitoring": BELOW_CLUSTER | {"cluster", "launch", "integrations"},
    "labs": BELOW_CLUSTER | {"cluster", "launch", "papers"},
    "papers": set(),
}
"""The parts of the package, and which other parts each may import."""
ENTRY = {"vicinal", *(f"vicinal.{each}" for each in ("__main__", "cli", "command_app"))}
ENTRY |= {f"vicinal.{each}" for each in ("doctor_command", "plain_commands")}
"""The command itself, which is above all parts: parts import only its version."""

OF_LABS = {"numpy", "scipy", "matplotlib", "pyarrow"}
"""Libraries that only labs need."""
WITH_LIBRARIES_OF_LABS = {
    "vicinal.region.format": "gives numpy's types of the region's records to tests and analyses",
}
"""Modules of the core that need a library of labs, with the reason. No other module of the core
imports these modules."""


def python_modules() -> dict[str, Path]:
    names = {
        path: path.relative_to(SOURCES).with_suffix("") for path in SOURCES.glob("vicinal/**/*.py")
    }
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in names.items()}


def imports(path: Path) -> Iterator[str]:
    """All imports of a file, including imports within functions and imports only for types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@cache
def python_arrows() -> list[tuple[str, str]]:
    modules = python_modules()
    return [
        (name, each) for name, path in modules.items() for each in imports(path) if each in modules
    ]


def c_arrows() -> Iterator[tuple[str, str]]:
    """Includes between the provider's folders; an include within a folder is no arrow."""
    provider = TREE / "provider"
    for path in provider.glob("*/*.[ch]"):
        for each in INCLUDE.findall(path.read_text()):
            if (provider / each).is_file() and "/" in each:
                yield path.parent.name, each.split("/")[0]


def parts(arrows: Iterable[tuple[str, str]], package: str) -> Mapping[str, set[str]]:
    """What each direct part of a package imports from the package's other parts."""
    depth = package.count(".") + 2
    found: dict[str, set[str]] = defaultdict(set)
    for who, whom in arrows:
        if who.startswith(f"{package}.") and whom.startswith(f"{package}."):
            ends = [".".join(each.split(".")[:depth]) for each in (who, whom)]
            if ends[0] != ends[1]:
                found[ends[0]].add(ends[1])
    return found


def cycle_of(graph: Mapping[str, set[str]]) -> str:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " needs ".join(reversed(error.args[1]))
    return ""


def part_of(module: str) -> str:
    return module.split(".")[1] if module not in ENTRY else ""


def core_modules() -> dict[str, Path]:
    """All modules except those of labs and those that the appliance's own Python runs."""
    return {
        name: path
        for name, path in python_modules().items()
        if part_of(name) != "labs" and "appliance/root" not in str(path)
    }


def test_each_part_uses_only_parts_below_it() -> None:
    wrong = [
        f"{who} imports {whom}"
        for who, whom in python_arrows()
        if who not in ENTRY and whom != "vicinal"
        if part_of(who) != part_of(whom) and part_of(whom) not in MAY_USE[part_of(who)]
    ]
    assert wrong == []


def test_all_parts_are_known() -> None:
    assert {part_of(name) for name in python_modules()} == {"", *MAY_USE}


def test_the_core_says_nowhere_that_it_needs_a_library_of_labs() -> None:
    """The check includes imports within functions."""
    found = {
        name: sorted(needed)
        for name, path in core_modules().items()
        if (needed := {each.partition(".")[0] for each in imports(path)} & OF_LABS)
    }
    assert found == {name: ["numpy"] for name in WITH_LIBRARIES_OF_LABS}


def test_the_core_loads_no_library_of_labs() -> None:
    names = sorted(core_modules().keys() - WITH_LIBRARIES_OF_LABS.keys())
    assert len(names) > 300
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*sys.modules)"
    )
    words = [sys.executable, "-c", script, *(name for name in names if "__main__" not in name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert not loaded & OF_LABS
    assert not loaded & WITH_LIBRARIES_OF_LABS.keys()


@pytest.mark.parametrize(
    "package", sorted({name.rpartition(".")[0] for name in python_modules()} - {""})
)
def test_no_part_of_a_package_needs_one_that_needs_it(package: str) -> None:
    assert cycle_of(parts(python_arrows(), package)) == ""


def test_each_folder_of_c_says_what_may_be_found_there() -> None:
    """A README.md in the folder or in a parent folder says it."""
    tops = ("provider", "guest", "slurm", "programs")
    folders = {path.parent for top in tops for path in (TREE / top).glob("**/*.c")}
    assert {TREE / "provider" / "region", TREE / "guest" / "agent"} <= folders
    silent = {
        str(folder.relative_to(TREE))
        for folder in folders
        if not any((each / "README.md").is_file() for each in (folder, folder.parent))
        or (folder.parent == TREE / "provider" and not (folder / "README.md").is_file())
    }
    assert silent == set()


def test_no_folder_of_the_provider_needs_one_that_needs_it() -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for who, whom in c_arrows():
        if who != whom:
            folders[who].add(whom)
    assert folders["api"] >= {"proto"}, "the arrows were not found"
    assert cycle_of(folders) == ""


def test_a_cycle_is_found() -> None:
    arrows = [("a.b.c", "a.d"), ("a.d.e", "a.f"), ("a.f", "a.b.x"), ("a.b.c", "a.b.x")]
    assert set(cycle_of(parts(arrows, "a")).split(" needs ")) == {"a.b", "a.d", "a.f"}
    assert cycle_of(parts(arrows[:2], "a")) == ""
