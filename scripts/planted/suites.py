"""Suites as data: how a suite runs in the copy, and which of its tests failed.

The suites come from tests/suites.toml.
"""

import json
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from checks import suites as checks

from planted.copy import Copy

PYTEST = ("build/venv/bin/python", "-m", "pytest", "-q", "-rfE", "--tb=short", "-x")
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
_SLOW = ("--no-suite", "fuzz", "--timeout-multiplier", "8")
_MESON = {
    "release": ("--no-suite", "fuzz"),
    "asan": _SLOW,
    "tsan": _SLOW,
    "fuzz": ("--suite", "fuzz"),
}
"""Options of `meson test` for each build, the same as in scripts/c_tests."""
NO_TESTS = 5  # pytest's exit status
MOST_SECONDS = 3600  # a guard against hangs: each test has its own limit


@dataclass(frozen=True)
class Suite:
    """A command that runs tests."""

    name: str
    tier: str  # common: `make check` always runs it; long: if it is selected
    kind: str
    build: str  # a kind of scripts/build
    options: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of a run of tests."""

    passed: bool
    ran: bool  # whether there was any test to run
    failed: tuple[
        str, ...
    ]  # their names, as the suite's tool takes them; may be empty after a failure
    output: str


def read_suites(tree: Path) -> dict[str, Suite]:
    """The parts of tests/suites.toml that can be run for a fault, by name.

    Each folder of tests is a part, so that the nearest tests can run first: `study`, and
    `study-long` for tests that the common check leaves out. The unit tests of each build are
    `unit`, `asan` and so on.
    """
    found: dict[str, Suite] = {}
    for row in checks.read_suites(tree):
        mark = ("-m", row.mark) if row.mark else ()
        for folder in row.folders:
            name = folder.removeprefix("tests/").removeprefix("python/").replace("/", "-")
            if row.mark == "long":
                name += "-long"
            found.setdefault(name, Suite(name, row.tier, "pytest", "release", (*mark, folder)))
        for command in row.commands:
            if command[0] == "scripts/c_tests":
                build = command[1]
                found[row.name] = Suite(row.name, row.tier, "meson", build, _MESON[build])
    return found


def targets_of(tree: Path, build: str, tests: Collection[str]) -> list[str]:
    """What ninja must build for some of meson's tests. Empty if only a whole build will do."""
    directory = tree / "build" / build
    known = directory / "meson-info" / "intro-tests.json"
    if not known.exists():
        return []
    found = {each["name"]: each for each in json.loads(known.read_text())}
    chosen = [found[name] for name in tests if name in found]
    # Builds contain the checkout's path, which the copy covers while it is in use.
    programs = [each["cmd"][0].partition(f"/build/{build}/")[2] for each in chosen]
    alone = all(len(each["cmd"]) == 1 for each in chosen)
    return programs if alone and all(programs) else []


def run_suite(copy: Copy, suite: Suite, near: str, without: Collection[str]) -> Outcome:
    """Run a suite until a test fails.

    If `near` is not empty, only these tests run. Tests of `without` are left out.
    """
    if suite.kind == "pytest":
        deselected = [f"--deselect={test}" for test in sorted(without)]
        return _pytest(copy, [*PYTEST, *_selected(copy, suite, near), *deselected])
    names = near.split()
    if without:
        listed = copy.run(["meson", "test", "-C", f"build/{suite.build}", "--no-rebuild", "--list"])
        every = {
            line.rpartition(" / ")[2].strip()
            for line in listed.output.splitlines()
            if " / " in line
        }
        names = sorted((set(names) or every).difference(without))
    return _meson(copy, suite.build, ["--maxfail", "1", *suite.options, *names])


def failing_of(copy: Copy, kind: str, build: str, tests: Collection[str]) -> set[str]:
    """Which of some tests of a kind and build fail. All of them if that is unknown."""
    if kind == "pytest":
        outcome = _pytest(copy, [*PYTEST, "--maxfail=0", *sorted(tests)])
    else:
        outcome = _meson(copy, build, [*_MESON[build], *sorted(tests)])
    return set(tests) if not outcome.passed and not outcome.failed else set(outcome.failed)


def _selected(copy: Copy, suite: Suite, near: str) -> list[str]:
    """A pytest suite's options for the nearest tests: files by words of their names, or else -k."""
    *options, folder = suite.options
    words = near.split(" or ")
    files = sorted((copy.tree / folder).glob("test_*.py"))
    named = [file for file in files if any(word in file.stem for word in words)]
    if not near:
        return [*options, folder]
    if not named:
        return [*options, folder, "-k", near]
    return [*options, *(str(file.relative_to(copy.tree)) for file in named)]


def _pytest(copy: Copy, command: list[str]) -> Outcome:
    done = copy.run(command, MOST_SECONDS)
    failed = tuple(dict.fromkeys(_PYTEST_FAILED.findall(done.output)))
    output = f"$ {shlex.join(command)}\n{done.output}"
    return Outcome(done.status in (0, NO_TESTS), done.status != NO_TESTS, failed, output)


def _meson(copy: Copy, build: str, arguments: list[str]) -> Outcome:
    folder = f"build/{build}"
    log = copy.tree / folder / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    command = ["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", *arguments]
    done = copy.run(command, MOST_SECONDS)
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    failed = tuple(
        result["name"].rpartition(" / ")[2]
        for result in results
        if result["result"] not in ("OK", "SKIP", "EXPECTEDFAIL", "INTERRUPT")
    )
    return Outcome(
        done.status == 0, bool(results), failed, f"$ {shlex.join(command)}\n{done.output}"
    )
