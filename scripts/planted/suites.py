"""Suites as data: how a suite is run in the copy, and which test of it failed.

A suite is a pytest or a meson command. `read_suites` takes any file of the form of
scripts/planted/suites.toml.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from planted.copy import Copy

PYTEST = ("build/venv/bin/python", "-m", "pytest", "-q", "-rfE", "--tb=short", "-x")
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)
NO_TESTS = 5  # pytest's exit status
MOST_SECONDS = 3600  # a guard: each test has its own


@dataclass(frozen=True)
class Suite:
    """A command that runs tests."""

    name: str
    tier: str  # common: `make check` runs it always; long: when it is selected
    kind: str
    build: str  # of scripts/build
    options: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a run of tests came to."""

    passed: bool
    ran: bool  # some test was there to be run
    failed: tuple[
        str, ...
    ]  # by their names, as the suite's tool takes them; may be empty after a failure
    output: str


def read_suites(file: Path) -> dict[str, Suite]:
    """The suites by name."""
    return {
        name: Suite(name, entry["tier"], entry["kind"], entry["build"], tuple(entry["options"]))
        for name, entry in tomllib.loads(file.read_text()).items()
    }


def run_suite(copy: Copy, suite: Suite, near: str, without: frozenset[str]) -> Outcome:
    """Run a suite until a test fails.

    If `near` is not empty, only those tests run; `without` are left out.
    """
    if suite.kind == "pytest":
        selection = ["-k", near] if near else []
        deselected = [f"--deselect={test}" for test in sorted(without)]
        return _pytest(copy, [*PYTEST, *suite.options, *selection, *deselected])
    names = near.split()
    if without:
        listed = copy.run(["meson", "test", "-C", f"build/{suite.build}", "--no-rebuild", "--list"])
        every = {
            line.rpartition(" / ")[2].strip()
            for line in listed.output.splitlines()
            if " / " in line
        }
        names = sorted((set(names) or every) - without)
    return _meson(copy, suite, ["--maxfail", "1", *suite.options, *names])


def failing_of(copy: Copy, suite: Suite, tests: Collection[str]) -> set[str]:
    """Which of some tests of suites of that kind and build fail; all where that is not told."""
    if suite.kind == "pytest":
        outcome = _pytest(copy, [*PYTEST, "--maxfail=0", *sorted(tests)])
    else:
        outcome = _meson(copy, suite, [*suite.options, *sorted(tests)])
    return set(tests) if not outcome.passed and not outcome.failed else set(outcome.failed)


def _pytest(copy: Copy, command: list[str]) -> Outcome:
    done = copy.run(command, MOST_SECONDS)
    failed = tuple(dict.fromkeys(_PYTEST_FAILED.findall(done.output)))
    output = f"$ {shlex.join(command)}\n{done.output}"
    return Outcome(done.status in (0, NO_TESTS), done.status != NO_TESTS, failed, output)


def _meson(copy: Copy, suite: Suite, arguments: list[str]) -> Outcome:
    folder = f"build/{suite.build}"
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
