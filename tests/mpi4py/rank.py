"""What each rank runs: mpi4py's own test suite, with its results written line by line.

    python rank.py SUITE OUTPUT [--only PATTERN]... [--without PATTERN]...

SUITE is the `test` directory of mpi4py's source. OUTPUT is a directory with one file for each rank,
`rank-N.jsonl`. The file has a line of facts, then one line when a test begins and one when it ends,
so that it shows where a job hangs. A PATTERN is compared with a test's full name,
module.Class.method, as fnmatch does. All ranks run the same tests in the same order. The exit
status is 0 if the suite ran to its end, whatever the tests' results.
"""

import argparse
import fnmatch
import json
import sys
import time
import unittest
from pathlib import Path
from typing import Any, TextIO


class Recorder(unittest.TestResult):
    """Writes down the result of every test."""

    def __init__(self, output: TextIO) -> None:
        super().__init__()
        self._output = output
        self._began = 0.0
        self._outcome = ""
        self._detail = ""

    def _write(self, **values: Any) -> None:
        self._output.write(json.dumps(values) + "\n")
        self._output.flush()

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self._began = time.monotonic()
        self._outcome, self._detail = "passed", ""
        self._write(test=test.id())

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        seconds = round(time.monotonic() - self._began, 4)
        self._write(test=test.id(), outcome=self._outcome, seconds=seconds, detail=self._detail)

    def _bad(self, test: unittest.TestCase, error: Any) -> None:
        self._outcome = "failed"
        self._detail = self._exc_info_to_string(error, test)  # type: ignore[attr-defined]
        if not _is_case(test):
            self._write(test=str(test), outcome="failed", seconds=0, detail=self._detail)

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self._bad(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._bad(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad(test, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._outcome, self._detail = "skipped", reason
        if not _is_case(test):
            self._write(test=str(test), outcome="skipped", seconds=0, detail=reason)


def _is_case(test: object) -> bool:
    """Whether it is a test. Failures also name setUpClass and setUpModule, which are none."""
    return isinstance(test, unittest.TestCase)


def flatten(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    """The tests of a suite and of its inner suites, in order."""
    tests: list[unittest.TestCase] = []
    for test in suite:
        tests.extend(flatten(test) if isinstance(test, unittest.TestSuite) else [test])
    return tests


def facts(library: str) -> dict[str, str]:
    """The libraries that this process has loaded, from its memory map."""
    import ctypes

    maps = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in maps if len(line.split(maxsplit=5)) == 6}
    fabrics = sorted(name for name in files if "/libfabric.so" in name)
    versions = []
    for name in fabrics:
        ask = ctypes.CDLL(name).fi_version
        ask.restype = ctypes.c_uint32
        versions.append(f"{ask() >> 16}.{ask() & 0xFFFF}")
    provider = [name for name in files if name.endswith("/libvicinal-fi.so")]
    return {
        "library": library.split("\n")[0].rstrip("\0"),
        "libfabric": " and ".join(versions),
        "provider": " and ".join(provider),
    }


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--without", action="append", default=[])
    options = parser.parse_args()

    sys.dont_write_bytecode = True
    sys.path.insert(0, str(options.suite))
    # Array libraries that happen to be installed are not part of the test.
    sys.modules.update({"cupy": None, "numba": None})  # type: ignore[dict-item]
    from mpi4py import MPI

    found = unittest.defaultTestLoader.discover(str(options.suite), pattern="test_*.py")
    chosen = unittest.TestSuite(
        test
        for test in flatten(found)
        if (not options.only or matches(test.id(), options.only))
        and not matches(test.id(), options.without)
    )
    rank = MPI.COMM_WORLD.Get_rank()
    with (options.output / f"rank-{rank}.jsonl").open("w", encoding="utf-8") as output:
        output.write(json.dumps({"facts": facts(MPI.Get_library_version())}) + "\n")
        chosen.run(Recorder(output))
        output.write(json.dumps({"end": True}) + "\n")


if __name__ == "__main__":
    main()
