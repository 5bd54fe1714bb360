"""make check-planted: which suite finds which planted fault.

A fault counts as found by a test that fails with it, fails again with it, and passes without it.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from planted.copy import Copy, CopyError
from planted.faults import Fault, FaultError, Sources, read_faults
from planted.suites import Outcome, Suite, read_suites, run_suite, run_test

CHECKOUT = Path(__file__).resolve().parents[2]
RESULTS = CHECKOUT / "build" / "check-planted.json"
LOGS = CHECKOUT / "build" / "planted" / "logs"
# Results of so many commits are kept; a change of the fault itself drops its own.
KEPT_COMMITS = 20
# So many tests of a suite may fail without the fault, too, before the suite says nothing.
FAILING_MOST = 5


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
    asked: dict[str, str] = field(default_factory=dict)  # by suite: what it said


class Record:
    """build/check-planted.json: results by fault, kept from run to run."""

    def __init__(self, file: Path, commits: list[str], faults: list[Fault]) -> None:
        self._file = file
        digests = {fault.id: fault.digest for fault in faults}
        kept = json.loads(file.read_text())["faults"] if file.exists() else []
        self.results = {
            entry["id"]: Result(**entry)
            for entry in kept
            if digests.get(entry["id"]) == entry["digest"] and entry["commit"] in commits
        }

    def add(self, result: Result) -> None:
        """Keep a result, on disk before the next fault begins."""
        self.results[result.id] = result
        document: dict[str, Any] = {"faults": [asdict(each) for each in self.results.values()]}
        part = self._file.with_suffix(".part")
        with part.open("w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._file)


class Trial:
    """One copy of the tree, and what fails in it without a fault."""

    def __init__(self, copy: Copy, suites: dict[str, Suite]) -> None:
        self._copy = copy
        self._suites = suites
        self._sources = Sources(copy.tree)
        self._built: set[str] = set()
        self._passing: set[str] = set()
        self._failing: set[str] = set()

    def of(self, fault: Fault) -> Result:
        """Ask the fault's suites one after the other, until one finds it."""
        began = time.monotonic()
        result = Result(fault.id, fault.digest, self._copy.commit)
        # First the tests that are near, of all suites: most faults are found by them, and soon.
        rounds = [(name, fault.near[name]) for name in fault.suites if name in fault.near]
        rounds += [(name, "") for name in fault.suites]
        for name, near in rounds:
            test = self._ask(fault, self._suites[name], near, result)
            if test is not None:
                result.found_by, result.tier, result.test = name, self._suites[name].tier, test
                break
        result.seconds = round(time.monotonic() - began, 1)
        return result

    def _ask(self, fault: Fault, suite: Suite, near: str, result: Result) -> str | None:
        """The test of a suite that finds the fault."""
        without = set(self._failing)
        for _ in range(FAILING_MOST):
            self._plant(fault, suite)
            outcome = run_suite(self._copy, suite, near, frozenset(without))
            self._log(fault, suite, outcome)
            if outcome.passed:
                result.asked[suite.name] = "passed" if outcome.ran else "no tests"
                return None
            if not outcome.failed:
                result.asked[suite.name] = "failed without naming a test"
                return None
            test = outcome.failed[0]
            again = run_test(self._copy, suite, test)
            self._log(fault, suite, again)
            if again.passed:
                result.asked[suite.name] = f"unsteady: {test}"
            elif self._passes_without(suite, test):
                result.asked[suite.name] = "found"
                return test
            else:
                result.asked[suite.name] = f"fails without the fault, too: {test}"
            without.add(test)
        return None

    def _passes_without(self, suite: Suite, test: str) -> bool:
        if test not in self._passing | self._failing:
            self._copy.restore()
            self._built.clear()
            self._build(suite)
            passed = run_test(self._copy, suite, test).passed
            (self._passing if passed else self._failing).add(test)
        return test in self._passing

    def _plant(self, fault: Fault, suite: Suite) -> None:
        file, text = self._sources.planted(fault)
        if file.read_text() != text:
            self._copy.restore()
            self._copy.write(file, text)
            if fault.language == "c":
                self._built.clear()
        self._build(suite)

    def _build(self, suite: Suite) -> None:
        if suite.build in self._built:
            return
        done = self._copy.run(["scripts/build", suite.build])
        if done.status != 0:
            raise FaultError(f"build/{suite.build} cannot be built:\n{done.output[-2000:]}")
        self._built.add(suite.build)

    def _log(self, fault: Fault, suite: Suite, outcome: Outcome) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{fault.id}.log").open("a") as file:
            file.write(f"==> {suite.name}\n{outcome.output}\n")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201


def describe(result: Result) -> str:
    """A result as one line."""
    where = (
        f"{result.found_by} ({result.tier}): {result.test}"
        if result.found_by
        else "NOTHING FOUND IT"
    )
    return f"{result.id:<36} {result.seconds:7.0f} s  {where}"


def check(only: list[str], again: bool) -> int:
    """Try the faults; the exit status."""
    faults = read_faults(CHECKOUT / "tests" / "planted")
    suites = read_suites(CHECKOUT / "scripts" / "planted" / "suites.toml")
    unknown = sorted(
        (set(only) - {fault.id for fault in faults})
        | {name for fault in faults for name in {*fault.suites, *fault.near} - set(suites)}
    )
    if unknown:
        raise FaultError(
            f"there is no {unknown[0]}: name faults of tests/planted and suites of suites.toml"
        )
    copy = Copy(CHECKOUT)
    copy.refresh()
    record = Record(RESULTS, copy.commits(KEPT_COMMITS), faults)
    trial = Trial(copy, suites)
    chosen = [fault for fault in faults if not only or fault.id in only]
    try:
        for number, fault in enumerate(chosen, 1):
            kept = record.results.get(fault.id)
            if kept is None or again or only:
                record.add(kept := trial.of(fault))
            say(f"{number:3}/{len(chosen)} {describe(kept)}")
    finally:
        copy.restore()
    results = [record.results[fault.id] for fault in chosen]
    say("")
    for result in results:
        say(describe(result))
    tiers = [result.tier for result in results]
    say(
        f"{len(results)} faults: {tiers.count('common')} found by the common check, "
        f"{tiers.count('long')} by long suites, {tiers.count(None)} by none. "
        f"Details: {RESULTS.relative_to(CHECKOUT)}"
    )
    return 1 if None in tiers else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="check-planted", description=__doc__)
    parser.add_argument(
        "--only", default="", help="faults by their ids, with commas; they are tried again"
    )
    parser.add_argument("--again", action="store_true", help="keep no results of earlier runs")
    arguments = parser.parse_args()
    try:
        return check([name for name in arguments.only.split(",") if name], arguments.again)
    except (CopyError, FaultError, OSError) as error:
        sys.stderr.write(f"check-planted: error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("check-planted: interrupted; run it again to go on\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
