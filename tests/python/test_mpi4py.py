"""mpi4py's own test suite, each rank a node, over the region: it must say what it says elsewhere.

What cannot pass is listed by name with the reason in tests/mpi4py/. A listed test that
passes fails here, as does one that fails and is not listed, or skips itself for a reason
that is not listed.
"""

import fnmatch
import importlib.metadata
import json
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vicinal.cluster.native import NativeCluster
from vicinal.errors import VicinalError
from vicinal.launch.job import Job
from vicinal.launch.running import launch

HERE = Path(__file__).resolve().parents[1] / "mpi4py"
MPIS = ("mpich", "openmpi")
GUARD_SECONDS = 400
"""After this a job hangs; it takes about a minute, and several on a busy machine."""
MEMBERS = 64
"""Spawned processes join the region beside the ranks."""
MOST_TESTS = 1800
"""The whole suite has at least so many tests: fewer, and something was not found."""

pytestmark = pytest.mark.timeout(2 * GUARD_SECONDS)


def load(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text())


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@pytest.fixture(scope="module")
def suite(checkout: Path) -> Path:
    """The tests in mpi4py's source, fetched once and checked by its hash."""
    place = checkout / "build" / "mpi4py"
    pinned = (HERE / "source.txt").read_text().splitlines()[-1].split()[0]
    assert pinned == f"mpi4py=={importlib.metadata.version('mpi4py')}"
    source = place / pinned.replace("==", "-")
    if not (source / "test").is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
        command += [f"--dest={place}", f"--requirement={HERE / 'source.txt'}"]
        subprocess.run(command, check=True, timeout=GUARD_SECONDS)
        with tarfile.open(f"{source}.tar.gz") as archive:
            archive.extractall(place, filter="data")
    return source / "test"


@pytest.fixture(scope="module", params=[2, 4])
def cluster(request: pytest.FixtureRequest) -> Iterator[NativeCluster]:
    with NativeCluster(nodes=request.param) as opened:
        yield opened


@dataclass
class Results:
    """What the tests of one job did, the worst of all ranks."""

    outcome: dict[str, str] = field(default_factory=dict)
    detail: dict[str, str] = field(default_factory=dict)
    trouble: str = ""
    """Why the job did not come to its end, and where its ranks were; empty if it did."""

    def having(self, outcome: str) -> set[str]:
        return {test for test, found in self.outcome.items() if found == outcome}

    def add(self, record: dict[str, Any]) -> None:
        test, outcome = record["test"], record["outcome"]
        order = ("skipped", "passed", "failed")
        if test not in self.outcome or order.index(outcome) > order.index(self.outcome[test]):
            self.outcome[test], self.detail[test] = outcome, record["detail"]


def run_suite(job: dict[str, Any], cluster: NativeCluster, suite: Path, output: Path) -> Results:
    """Run chosen tests on all ranks of a job and gather what they wrote down."""
    only, without = job.pop("only", []), job.pop("without", [])
    program = [sys.executable, str(HERE / "rank.py"), str(suite), str(output)]
    for option, patterns in (("--only", only), ("--without", without)):
        program += [f"{option}={pattern}" for pattern in patterns]
    output.mkdir()
    results = Results()
    try:
        launch(Job(program, **job), cluster, timeout=GUARD_SECONDS)
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
        if not records or "end" not in records[-1]:
            places.append(f"rank {rank} at {records[-1] if records else 'its start'}\n")
    results.trouble += "".join(places)
    return results


def describe(results: Results, tests: set[str]) -> str:
    return "\n".join(f"{test}: {results.detail[test]}" for test in sorted(tests))


@pytest.mark.parametrize("mpi", MPIS)
def test_suite(mpi: str, cluster: NativeCluster, suite: Path, tmp_path: Path) -> None:
    ranks = len(cluster.nodes)
    selection = load("selection.toml")
    known = load(f"known-failures-{mpi}.toml")
    unreliable = [test for entry in known.get("unreliable", []) for test in entry["tests"]]
    failing = [test for entry in known["failure"] for test in entry["tests"]]
    job: dict[str, Any] = {"ranks": ranks, "mpi": mpi, "members": MEMBERS}
    job["without"] = [*unreliable, *selection["left-out"], *selection.get(f"left-out-{mpi}", {})]
    if ranks > 2:
        job["only"] = selection["four-ranks"]["tests"]
    results = run_suite(job, cluster, suite, tmp_path / "results")
    assert not results.trouble

    failed = results.having("failed")
    surprising = {test for test in failed if not matches(test, failing)}
    assert not surprising, describe(results, surprising)
    mended = {test for test in results.having("passed") if matches(test, failing)}
    assert not mended, f"these pass: take them out of known-failures-{mpi}.toml"
    skipped = {
        test for test in results.having("skipped") if results.detail[test] not in selection["skips"]
    }
    assert not skipped, describe(results, skipped)
    print(f"{mpi}, {ranks} ranks: {Counter(results.outcome.values())}")
    if ranks == 2:
        assert len(results.outcome) > MOST_TESTS
        for pattern in failing:
            assert any(fnmatch.fnmatchcase(test, pattern) for test in failed), pattern
    else:
        for pattern in selection["four-ranks"]["tests"]:
            assert any(fnmatch.fnmatchcase(test, pattern) for test in results.outcome), pattern


@pytest.mark.parametrize("mpi", MPIS)
def test_known_failures_are_not_ours(mpi: str, suite: Path, tmp_path: Path) -> None:
    """Each fails in the same way where no message goes through the region."""
    for number, entry in enumerate(load(f"known-failures-{mpi}.toml")["failure"]):
        assert entry["reason"].strip()
        assert entry["elsewhere"]["path"] != "region"
        job = {"ranks": 2, "mpi": mpi, "only": entry["tests"], **entry["elsewhere"]}
        with NativeCluster(nodes=2) as cluster:
            results = run_suite(job, cluster, suite, tmp_path / str(number))
        assert not results.trouble
        assert results.having("failed") == set(results.outcome), "these do not all fail there"
        assert results.outcome
