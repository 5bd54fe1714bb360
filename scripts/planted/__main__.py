"""make check-planted: which suite finds which planted fault.

A fault counts as found if a test fails with it and passes without it.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from checks.suites import CheckError

from planted.copy import Copy, CopyError
from planted.faults import Fault, FaultError, Sources, read_faults
from planted.suites import Outcome, Suite, failing_of, read_suites, run_suite, targets_of

CHECKOUT = Path(__file__).resolve().parents[2]
RESULTS = CHECKOUT / "build" / "check-planted.json"
LOGS = CHECKOUT / "build" / "planted" / "logs"
# Results of this many commits are kept. A change of a fault drops its own result.
KEPT_COMMITS = 100
# After this many faults, the tests that found them run without the faults.
BATCH = 8


@dataclass
class Result:
    """What became of a fault."""

    id: str
    digest: str
    commit: str
    found_by: str | None = None
    tier: str | None = None
    test: str | None = None
    seconds: float = 0
    asked: dict[str, str] = field(default_factory=dict)  # by suite: its result


class Record:
    """The file build/check-planted.json: results by fault, kept from run to run."""

    def __init__(self, file: Path, commits: list[str], faults: list[Fault]) -> None:
        self._file = file
        known = {fault.id: fault for fault in faults}
        kept = json.loads(file.read_text())["faults"] if file.exists() else []
        self.results = {
            entry["id"]: Result(**entry)
            for entry in kept
            if entry["commit"] in commits
            and entry["id"] in known
            and known[entry["id"]].digest == entry["digest"]
            and (entry["found_by"] or {*known[entry["id"]].suites} <= {*entry["asked"]})
        }

    def add(self, result: Result) -> None:
        """Keep a result. It is on disk before the next fault begins."""
        self.results[result.id] = result
        document: dict[str, Any] = {"faults": [asdict(each) for each in self.results.values()]}
        part = self._file.with_suffix(".part")
        with part.open("w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._file)


class Trial:
    """One copy of the tree, and the tests that fail in it without a fault."""

    def __init__(self, copy: Copy, suites: dict[str, Suite]) -> None:
        self._copy = copy
        self._suites = suites
        self._sources = Sources(copy.tree)
        self._built: set[str] = set()
        # Tests that ran without a fault, by build and name.
        self._passing: set[tuple[str, str]] = set()
        self._failing: set[tuple[str, str]] = set()

    def of(self, fault: Fault, *, near_only: bool) -> Result:
        """Run the fault's suites one after the other, until a test fails with the fault."""
        began = time.monotonic()
        result = Result(fault.id, fault.digest, self._copy.commit)
        # The nearest tests of all suites come first, because they find most faults, and soon.
        rounds = [(name, fault.near[name]) for name in fault.suites if name in fault.near]
        if not near_only:
            rounds += [(name, "") for name in fault.suites]
        for name, near in rounds:
            suite = self._suites[name]
            try:
                self._plant(fault, suite, near)
            except FaultError as error:
                result.asked[name] = str(error)
                break
            without = {test for build, test in self._failing if build == suite.build}
            outcome = run_suite(self._copy, suite, near, without)
            self._log(fault, suite, outcome)
            if outcome.passed:
                result.asked[name] = "passed" if outcome.ran else "no tests"
            elif not outcome.failed:
                result.asked[name] = "failed without naming a test"
            else:
                result.asked[name] = "found"
                result.found_by, result.tier, result.test = name, suite.tier, outcome.failed[0]
                break
        result.seconds = round(time.monotonic() - began, 1)
        return result

    def confirm(self, results: Sequence[Result]) -> list[Result]:
        """Try faults' tests without a fault. Returns results that hold, or that have no test."""
        groups: dict[tuple[str, str], set[str]] = {}
        for result in results:
            if result.found_by is not None and self._test_of(result) not in self._passing:
                suite = self._suites[result.found_by]
                groups.setdefault((suite.kind, suite.build), set()).add(result.test or "")
        if groups:
            self._restore()
        for (kind, build), tests in groups.items():
            self._build(build, tests if kind == "meson" else [])
            failing = failing_of(self._copy, kind, build, tests)
            self._failing |= {(build, test) for test in failing}
            self._passing |= {(build, test) for test in tests - failing}
        return [
            each
            for each in results
            if each.found_by is None or self._test_of(each) in self._passing
        ]

    def _test_of(self, result: Result) -> tuple[str, str]:
        return self._suites[result.found_by or ""].build, result.test or ""

    def _plant(self, fault: Fault, suite: Suite, near: str) -> None:
        """Plant only this fault in the copy, and build it. Raises FaultError."""
        file, text = self._sources.planted(fault)
        if file.read_text() != text:
            self._restore()
            self._copy.write(file, text)
            if fault.language == "c":
                self._built.clear()
        self._build(suite.build, near.split() if suite.kind == "meson" else [])

    def _restore(self) -> None:
        if any(file.suffix != ".py" for file in self._copy.restore()):
            self._built.clear()

    def _build(self, build: str, tests: Collection[str]) -> None:
        """Build everything, or what some of meson's tests need."""
        if build in self._built:
            return
        targets = targets_of(self._copy.tree, build, tests) if tests else []
        if targets:
            done = self._copy.run(["ninja", "--quiet", "-C", f"build/{build}", *sorted(targets)])
        else:
            done = self._copy.run(["scripts/build", build])
            self._built.add(build)
        if done.status != 0:
            self._built.discard(build)
            raise FaultError(f"build/{build} cannot be built:\n{done.output[-2000:]}")

    def _log(self, fault: Fault, suite: Suite, outcome: Outcome) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{fault.id}.log").open("a") as file:
            file.write(f"==> {suite.name}\n{outcome.output}\n")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def describe(result: Result) -> str:
    """A result as one line."""
    troubles = [said for said in result.asked.values() if said not in ("passed", "no tests")]
    if result.found_by:
        where = f"{result.found_by} ({result.tier}): {result.test}"
    elif troubles:
        where = f"COULD NOT BE TRIED: {troubles[-1].splitlines()[0]}"
    else:
        where = "NOTHING FOUND IT" if result.asked else "NO TEST RAN"
    return f"{result.id:<36} {result.seconds:7.0f} s  {where}"


def check(only: list[str], commit: str, *, again: bool, near_only: bool) -> int:
    """Try the faults. Returns the exit status."""
    faults = read_faults(CHECKOUT / "tests" / "planted")
    suites = read_suites(CHECKOUT)
    unknown = sorted(
        (set(only) - {fault.id for fault in faults})
        | {name for fault in faults for name in {*fault.suites, *fault.near} - set(suites)}
    )
    if unknown:
        raise FaultError(f"there is no {unknown[0]}: see tests/planted and tests/suites.toml")
    copy = Copy(CHECKOUT, commit)
    copy.refresh()
    record = Record(RESULTS, copy.commits(KEPT_COMMITS), faults)
    trial = Trial(copy, suites)
    chosen = [fault for fault in faults if not only or fault.id in only]
    waiting = [each for each in chosen if again or only or each.id not in record.results]
    say(f"{len(chosen)} faults, {len(chosen) - len(waiting)} of them tried before")
    left = 0
    try:
        while waiting:
            # Tests that found faults run without the faults together, because that takes less time.
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            found = []
            for fault in batch:
                found.append(trial.of(fault, near_only=near_only))
                say(describe(found[-1]))
            good = trial.confirm(found)
            for result in good:
                if result.found_by or not near_only:
                    record.add(result)
                else:
                    left += 1
            for result in found:
                if result not in good:
                    say(f"{result.id}: {result.test} fails without the fault, too: trying again")
            good_ids = {result.id for result in good}
            waiting = [fault for fault in batch if fault.id not in good_ids] + waiting
    finally:
        copy.restore()
    results = [record.results[fault.id] for fault in chosen if fault.id in record.results]
    say("")
    for result in results:
        say(describe(result))
    tiers = [result.tier for result in results]
    say(
        f"{len(results)} faults: {tiers.count('common')} found by the common check, "
        f"{tiers.count('long')} by long suites, {tiers.count(None)} by none. "
        f"Details: {RESULTS.relative_to(CHECKOUT)}"
    )
    if left:
        say(f"{left} more are not found by their nearest tests: run it without --near")
    return 1 if None in tiers or left else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="check-planted", description=__doc__)
    parser.add_argument(
        "--only", default="", help="ids of faults, with commas between them; tried again"
    )
    parser.add_argument("--again", action="store_true", help="discard results of earlier runs")
    parser.add_argument("--commit", default="HEAD", help="the commit to copy (default: HEAD)")
    parser.add_argument("--near", action="store_true", help="run only the tests nearest to each")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        only = [name for name in arguments.only.split(",") if name]
        return check(only, arguments.commit, again=arguments.again, near_only=arguments.near)
    except (CheckError, CopyError, FaultError, OSError) as error:
        sys.stderr.write(f"check-planted: error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("check-planted: interrupted; run it again to go on\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
