"""`make check-mpis`: mpi4py's whole suite over the region, with every MPI library.

    python check.py [--only NAME,...] [--without NAME,...] [--hosts 1,2] [--ranks 2,4]
                    [--full] [--resume]

Each rank is a node of its own. With 2 ranks the whole suite runs. With 4 ranks the tests run that
need more than two ranks (selection.toml), or with --full the whole suite. With the libraries that
`make` installs, the runs with 4 ranks are repeated over two hosts with two nodes each: the nodes of
a host share a region, and the network connects the hosts. --hosts 1 leaves the repetition out,
--hosts 2 everything else; --ranks does the same with the number of ranks.

known-failures-*.toml list excluded and failing tests with the reason. A failing test must fail in
the same way if no message goes through Vicinal. The results are in build/check-mpis, and
result.json there has all of them; --resume keeps the good results of the same provider.
"""

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from suite import (
    MEMBERS_PER_RANK,
    Lists,
    fails_elsewhere,
    faults,
    fetch_suite,
    passes_again,
    run_suite,
)

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.mpi.environment import PROVIDER_FILE, checkout, provider_directory
from vicinal.mpi.libfabric import mpi_version
from vicinal.mpi.libraries import STANDARD, Mpi, installation

GUARD_SECONDS = 3600
"""A job that takes longer hangs. The whole suite with 4 ranks on 2 cores took 1171 s with MPICH
4.3, and Open MPI 5 was near its end after 1500 s, beside other work."""
RANKS = {1: (2, 4), 2: (4,)}
"""The numbers of ranks by the number of hosts."""


@dataclass
class Line:
    """One line of the table: a run of the suite."""

    mpi: str
    version: str
    libfabric: str
    hosts: int
    ranks: int
    tests: str
    """The tests that ran: `whole`, or `subset` for those of selection.toml."""
    passed: int
    failed: int
    """Failures that are listed; any other failure is a fault."""
    excluded: int
    """Tests, or patterns of tests, that do not run."""
    skipped: int
    """Tests that mpi4py skips: the MPI library lacks something, or a package is not installed."""
    seconds: float
    provider: str
    """The beginning of the provider's SHA-256."""
    skips: dict[str, int] = field(default_factory=dict)
    """mpi4py's reasons, and the number of tests for each."""
    faults: str = ""


COLUMNS = {
    "mpi": "MPI",
    "version": "version",
    "libfabric": "libfabric",
    "hosts": "hosts",
    "ranks": "ranks",
    "tests": "tests",
    "passed": "passed",
    "failed": "failed",
    "excluded": "excluded",
    "skipped": "skipped",
    "seconds": "seconds",
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(Mpi))
    parser.add_argument("--without", default="")
    parser.add_argument("--hosts", default="1,2")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    tree = checkout()
    assert tree is not None
    output = tree / "build" / "check-mpis"
    output.mkdir(parents=True, exist_ok=True)
    try:
        left_out = [Mpi(name) for name in options.without.split(",") if name]
        mpis = [Mpi(name) for name in options.only.split(",") if name]
        installed = {mpi: installation(mpi) for mpi in mpis if mpi not in left_out}
        hosts = [int(number) for number in options.hosts.split(",")]
        if not set(hosts) <= set(RANKS):
            raise VicinalError(f"there are no runs over {options.hosts} hosts", "say 1, 2 or 1,2")
        numbers = [int(number) for number in options.ranks.split(",")]
        if not set(numbers) <= set(RANKS[1]):
            raise VicinalError(f"there are no runs of {options.ranks} ranks", "say 2, 4 or 2,4")
        provider = provider_directory() / PROVIDER_FILE
    except (VicinalError, ValueError) as error:
        print(f"make check-mpis: error: {error}", file=sys.stderr)
        return 2
    digest = hashlib.sha256(provider.read_bytes()).hexdigest()[:16]
    suite = fetch_suite(tree / "build" / "mpi4py")

    lines = _kept(output / "result.json", digest) if options.resume else []
    runs = [
        (mpi, count, ranks)
        for count in hosts
        for mpi in installed
        for ranks in RANKS[count]
        if ranks in numbers and (count == 1 or mpi in STANDARD)
    ]
    for mpi, count, ranks in runs:
        tests = "whole" if ranks == RANKS[1][0] or options.full else "subset"
        name = _name(mpi, count, ranks)
        done = [(line.mpi, line.hosts, line.ranks, line.tests) for line in lines]
        if (mpi, count, ranks, tests) in done:
            print(f"{name}: kept from an earlier run", flush=True)
            continue
        line = _run(mpi, count, ranks, tests, suite, output)
        line.version, line.provider = mpi_version(installed[mpi]), digest
        lines.append(line)
        _write(output / "result.json", lines)
        print(f"{name}: {line.faults or 'good'}", flush=True)
    print(_table(lines))
    bad = [line for line in lines if line.faults]
    for line in bad:
        print(f"\n{_name(line.mpi, line.hosts, line.ranks)}:\n{line.faults}", file=sys.stderr)
    # The closing line in the form that other tools read.
    print(f"\n{len(lines) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad or not lines else 0


def _name(mpi: str, hosts: int, ranks: int) -> str:
    return f"{mpi}, {ranks} ranks" + (f" over {hosts} hosts" if hosts > 1 else "")


def _run(mpi: Mpi, hosts: int, ranks: int, tests: str, suite: Path, output: Path) -> Line:
    lists = Lists.load(mpi, ranks)
    directory = output / (f"{mpi}-{ranks}" + (f"-hosts-{hosts}" if hosts > 1 else ""))
    shutil.rmtree(directory, ignore_errors=True)
    members = MEMBERS_PER_RANK * ranks
    job = {"ranks": ranks, "mpi": mpi, "members": members, "without": lists.excluded}
    job |= {"hosts": hosts, "environment": lists.environment}
    if tests == "subset":
        job["only"] = lists.four_ranks
    began = time.monotonic()
    again, wrong = 0, []
    with EphemeralCluster(nodes=ranks) as cluster:
        results = run_suite(job, cluster, suite, directory, GUARD_SECONDS)
        for number, entry in enumerate(lists.again if tests == "whole" else []):
            place = directory / f"again-{number}"
            trouble, passed = passes_again(entry, job, cluster, suite, place, GUARD_SECONDS)
            wrong.append(trouble)
            again += passed
    seconds = time.monotonic() - began
    wrong.append(faults(results, lists, whole=tests == "whole"))
    if not results.facts.get("provider"):
        wrong.append("the ranks did not load Vicinal's provider")
    if ranks == RANKS[1][0]:
        for number, entry in enumerate([*lists.failures, *lists.unreliable, *lists.avoided]):
            place = directory / f"elsewhere-{number}"
            wrong.append(fails_elsewhere(entry, mpi, suite, place, GUARD_SECONDS))
    skipped = results.having("skipped")
    return Line(
        mpi=mpi.value,
        version="",
        libfabric=results.facts.get("libfabric", ""),
        hosts=hosts,
        ranks=ranks,
        tests=tests,
        passed=len(results.having("passed")) + again,
        failed=len(results.having("failed")),
        excluded=len(lists.never_run),
        skipped=len(skipped),
        seconds=round(seconds, 1),
        provider="",
        skips=dict(Counter(results.detail[test] for test in skipped)),
        faults="\n".join(filter(None, wrong)),
    )


def _kept(path: Path, provider: str) -> list[Line]:
    """The good lines of an earlier result with the same provider."""
    if not path.is_file():
        return []
    lines = [Line(**{"hosts": 1, **values}) for values in json.loads(path.read_text())["lines"]]
    return [line for line in lines if line.provider == provider and not line.faults]


def _write(path: Path, lines: list[Line]) -> None:
    unfinished = path.with_suffix(".part")  # an interrupted run resumes from a whole file
    unfinished.write_text(json.dumps({"lines": [asdict(line) for line in lines]}, indent=1) + "\n")
    unfinished.replace(path)


def _table(lines: list[Line]) -> str:
    rows = [list(COLUMNS.values())]
    rows += [[str(getattr(line, name)) for name in COLUMNS] for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VicinalError as error:
        sys.exit(f"make check-mpis: error: {error}")
    except KeyboardInterrupt:
        print("make check-mpis: interrupted: go on with RESUME=1", file=sys.stderr)
        sys.exit(130)
