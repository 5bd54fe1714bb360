"""Run mpi4py's test suite as a job, and judge the results of its tests.

The lists beside this file say which tests cannot pass with which MPI library, and why. These are
faults: a listed test that passes, a failing test that is not listed, and a test that skips itself
for a reason that is not listed.
"""

import fnmatch
import importlib.metadata
import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.job import Job

HERE = Path(__file__).resolve().parent
MEMBERS_PER_RANK = 32
"""Spawned processes also join the region: 4 ranks of Open MPI 4.1.4 that each spawned several
processes, with two endpoints each, needed more than 64 member slots."""
LEAST_TESTS = 1800
"""The whole suite has more tests than that, even without the tests that `make check` leaves out. If
there are fewer, discovery missed something."""

_FETCH_SECONDS = 400
_LAST_WORDS = 4000
"""Characters of a job's last output, shown if the job ended before its tests."""
_HANG_SECONDS = 40
"""Long enough to conclude that a test hangs that otherwise takes well under a second."""


def fetch_suite(place: Path) -> Path:
    """Return the tests in mpi4py's source, downloaded once into `place` and checked by hash."""
    pinned = (HERE / "source.txt").read_text().splitlines()[-1].split()[0]
    assert pinned == f"mpi4py=={importlib.metadata.version('mpi4py')}"
    source = place / pinned.replace("==", "-")
    if not (source / "test").is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
        command += [f"--dest={place}", f"--requirement={HERE / 'source.txt'}"]
        subprocess.run(command, check=True, timeout=_FETCH_SECONDS)
        # pip checked the hash; Debian 12's own Python has no filter for untrusted archives.
        subprocess.run(["tar", "-xzf", f"{source}.tar.gz", "-C", place], check=True)
    return source / "test"


def matches(name: str, patterns: list[str]) -> bool:
    """Whether one of the patterns matches a test's full name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Lists:
    """Known results of the suite, in general and with one MPI library."""

    selection: dict[str, Any]
    skips: dict[str, str]
    """Reasons for which tests may skip themselves with this library only, and their meaning."""
    failures: list[dict[str, Any]]
    """Entries of tests that fail both here and elsewhere."""
    unreliable: list[dict[str, Any]]
    """Entries of tests that do not run, because they hang, crash or do either by chance."""
    again: list[dict[str, Any]]
    """Entries of tests that run again in another environment, where they must pass."""
    avoided: list[dict[str, Any]]
    """Entries of tests that fail unless the entry's variables are set; every run sets them."""

    @classmethod
    def load(cls, mpi: str, ranks: int = 2) -> "Lists":
        """Read the entries for this number of ranks from the files beside this one."""
        known = _load(f"known-failures-{mpi}.toml")
        kinds = [
            [entry for entry in known.get(kind, []) if ranks in entry.get("ranks", [ranks])]
            for kind in ("failure", "unreliable", "again", "avoided")
        ]
        return cls(_load("selection.toml"), known.get("skips", {}), *kinds)

    @property
    def failing(self) -> list[str]:
        """Patterns of the tests that fail."""
        return [test for entry in self.failures for test in entry["tests"]]

    @property
    def excluded(self) -> list[str]:
        """Patterns of the tests that do not run."""
        return [test for entry in self.unreliable for test in entry["tests"]]

    @property
    def environment(self) -> dict[str, str]:
        """Variables for every job."""
        return {name: text for entry in self.avoided for name, text in entry["by"].items()}

    @property
    def never_run(self) -> list[str]:
        """Patterns of the tests that run in no environment."""
        in_another = {test for entry in self.again for test in entry["tests"]}
        return [test for test in self.excluded if test not in in_another]

    @property
    def four_ranks(self) -> list[str]:
        """Patterns of the tests that need more than two ranks."""
        tests: list[str] = self.selection["four-ranks"]["tests"]
        return tests

    @property
    def slow(self) -> list[str]:
        """Patterns of the tests in four_ranks that `make check` leaves out."""
        tests: list[str] = self.selection["four-ranks"]["slow"]
        return tests

    def may_skip(self, reason: str) -> bool:
        """Whether a test may skip itself for this reason."""
        return reason in self.selection["skips"] or reason in self.skips


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text())


@dataclass
class Results:
    """The results of the tests of one job; for each test, the worst of all ranks."""

    outcome: dict[str, str] = field(default_factory=dict)
    detail: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    """Why the job did not end normally, and where its ranks were; empty if it did."""
    facts: dict[str, str] = field(default_factory=dict)
    """Facts of rank 0: its MPI library, libfabric and provider."""

    def having(self, outcome: str) -> set[str]:
        """The tests with one outcome: passed, failed or skipped."""
        return {test for test, found in self.outcome.items() if found == outcome}

    def add(self, record: dict[str, Any]) -> None:
        """Add the record that one rank wrote about one test."""
        test, outcome = record["test"], record["outcome"]
        order = ("skipped", "passed", "failed")
        if test not in self.outcome or order.index(outcome) > order.index(self.outcome[test]):
            self.outcome[test], self.detail[test] = outcome, record["detail"]

    def describe(self, tests: set[str]) -> str:
        """The tests and their details, as text for people."""
        return "\n".join(f"{test}: {self.detail[test]}" for test in sorted(tests))


LOST_DAEMON = "PRTE has lost communication with a remote daemon"
"""Open MPI's launcher says this if its daemon on a node ended. If a rank ended, it says that. Seen
in 1 of 9 runs of its dynamic processes over hosts on two cores."""


def run_suite(
    job: dict[str, Any], cluster: EphemeralCluster, suite: Path, output: Path, timeout: float
) -> Results:
    """Run chosen tests on all ranks of a job, and collect the records that the ranks wrote.

    `job` has arguments of Job, and the patterns `only` and `without`. The function creates
    `output`. If the launcher lost one of its own daemons, the job runs a second time, with a
    message.
    """
    results = _run_once(job, cluster, suite, output, timeout)
    if LOST_DAEMON in results.trouble:
        said = results.trouble + results.describe(results.having("failed"))
        print(f"run again, as prterun lost a daemon of its own:\n{said}", file=sys.stderr)
        results = _run_once(job, cluster, suite, output / "again", timeout)
    return results


def _run_once(
    job: dict[str, Any], cluster: EphemeralCluster, suite: Path, output: Path, timeout: float
) -> Results:
    job = dict(job)
    only, without = job.pop("only", []), job.pop("without", [])
    program = [sys.executable, str(HERE / "rank.py"), str(suite), str(output)]
    for option, patterns in (("--only", only), ("--without", without)):
        program += [f"{option}={pattern}" for pattern in patterns]
    output.mkdir(parents=True)
    results, ended = Results(), ""
    try:
        done = launch(Job(program, **job), cluster, timeout=timeout)
        ended = f"the job ended with status {done.returncode}: {done.stderr[-_LAST_WORDS:]}\n"
        (output / "stdout").write_text(done.stdout)
        (output / "stderr").write_text(done.stderr)
    except VicinalError as error:
        results.trouble = f"{error}\n"
    places = []
    for rank in range(job["ranks"]):
        file = output / f"rank-{rank}.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        records = [json.loads(line) for line in lines]
        for record in records:
            if "outcome" in record:
                results.add(record)
            elif "facts" in record and rank == 0:
                results.facts = record["facts"]
        if not records or "end" not in records[-1]:
            places.append(f"rank {rank} at {records[-1] if records else 'its start'}\n")
    results.trouble += "".join(places)
    if places and ended:
        results.trouble += ended
    return results


def faults(results: Results, lists: Lists, *, whole: bool) -> str:
    """Describe the faults of the results, for people; empty if there are none.

    If `whole`, every test had to run; otherwise the tests of Lists.four_ranks.
    """
    if results.trouble:
        return results.trouble
    found = []
    failed = results.having("failed")
    surprising = {test for test in failed if not matches(test, lists.failing)}
    if surprising:
        found.append(results.describe(surprising))
    mended = {test for test in results.having("passed") if matches(test, lists.failing)}
    if mended:
        found.append(f"these pass, and are listed as failing: {', '.join(sorted(mended))}")
    skipped = {
        test for test in results.having("skipped") if not lists.may_skip(results.detail[test])
    }
    if skipped:
        found.append(f"skipped for no listed reason:\n{results.describe(skipped)}")
    if whole:
        if len(results.outcome) <= LEAST_TESTS:
            found.append(f"only {len(results.outcome)} tests were found")
        found += [
            f"listed as failing, but there is no such test: {pattern}"
            for pattern in lists.failing
            if not any(fnmatch.fnmatchcase(test, pattern) for test in failed)
        ]
    else:
        found += [
            f"there are no such tests: {pattern}"
            for pattern in lists.four_ranks
            if not any(fnmatch.fnmatchcase(test, pattern) for test in results.outcome)
        ]
    return "\n".join(found)


def passes_again(
    entry: dict[str, Any],
    job: dict[str, Any],
    cluster: EphemeralCluster,
    suite: Path,
    output: Path,
    timeout: float,
) -> tuple[str, int]:
    """Run the tests of an entry of Lists.again; return the entry's faults, and how many passed."""
    if not entry["reason"].strip():
        return f"an entry needs a reason: {entry}", 0
    environment = {**job.get("environment", {}), **entry["environment"]}
    job = {**job, "only": entry["tests"], "without": [], "environment": environment}
    results = run_suite(job, cluster, suite, output, timeout)
    bad = results.having("failed") | results.having("skipped")
    trouble = results.trouble + (results.describe(bad) if bad else "")
    passed = len(results.having("passed"))
    return trouble or ("" if passed else f"there are no such tests: {entry['tests']}"), passed


def fails_elsewhere(
    entry: dict[str, Any], mpi: str, suite: Path, output: Path, timeout: float
) -> str:
    """Run the tests of an entry where it says that they fail without Vicinal.

    If the tests hang or crash over the region, they may do the same there. Returns the entry's
    faults; empty if the entry is true.
    """
    if not entry["reason"].strip():
        return f"an entry needs a reason: {entry}"
    if "elsewhere" not in entry:
        return ""  # by chance: one run shows nothing
    elsewhere = dict(entry["elsewhere"])
    if elsewhere["path"] == "region":
        return f"elsewhere is not here: {entry}"
    may_hang = elsewhere.pop("hangs", False)
    for number, pattern in enumerate(entry["tests"] if may_hang else [""]):
        tests = [pattern] if may_hang else entry["tests"]
        job = {"ranks": 2, "mpi": mpi, "only": tests, **elsewhere}
        limit = _HANG_SECONDS if may_hang else timeout
        with EphemeralCluster(nodes=2) as cluster:
            results = run_suite(job, cluster, suite, output / str(number), limit)
        passed = results.having("passed")
        if not may_hang and results.trouble:
            return results.trouble
        # Of tests that fail by chance, some may pass before one ends the job.
        if (passed and not may_hang) or not (results.trouble or results.having("failed")):
            return f"these do not fail elsewhere: {sorted(passed) or tests}"
    return ""
