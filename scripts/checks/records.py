"""Results of suites: kept as JSON, and read together with junit files of pytest and Meson."""

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from checks.suites import CheckError


@dataclass(frozen=True)
class Record:
    """One run of a suite."""

    suite: str
    tier: str
    why: str
    seconds: float
    result: str
    """`passed`, or what went wrong."""
    commit: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong."""
        return self.result == "passed"


def commit_of(tree: Path) -> str:
    """The commit of the tree. Uncommitted changes add a hash behind a plus sign."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", "-C", tree, *words], capture_output=True, check=True).stdout

    commit = git("rev-parse", "HEAD").decode().strip()
    changed = git("diff", "HEAD")
    for name in git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        if name:
            changed += name + (tree / os.fsdecode(name)).read_bytes()
    return f"{commit}+{sha256(changed).hexdigest()[:12]}" if changed else commit


def read_records(file: Path) -> list[Record]:
    """The results in a file. Raises CheckError if the file has other contents."""
    try:
        return [Record(**row) for row in json.loads(file.read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise CheckError(f"{file}: is no list of results: {error}. Remove the file") from error


def write_records(file: Path, records: Iterable[Record]) -> None:
    """Write all records, or leave the file unchanged."""
    part = file.with_suffix(".part")
    try:
        part.write_text(json.dumps([asdict(record) for record in records], indent=1) + "\n")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CheckError(f"{file}: {error.strerror}. Make room on the disk") from error


@dataclass(frozen=True)
class Case:
    """A test that was run."""

    suite: str
    name: str
    seconds: float
    skipped: str
    """Why the test was skipped. Empty if it ran."""


def read_cases(directory: Path) -> Iterator[Case]:
    """All tests in the junit files of a directory."""
    for file in sorted(directory.glob("*.xml")):
        try:
            root = ElementTree.parse(file).getroot()
        except ElementTree.ParseError:
            continue  # a run was ended while it wrote the file
        for case in root.iter("testcase"):
            skipped = case.find("skipped")
            name = (
                (case.get("file") or case.get("classname") or "") + "::" + (case.get("name") or "")
            )
            reason = "" if skipped is None else skipped.get("message") or "no reason given"
            yield Case(file.stem, name.partition("@")[0], float(case.get("time") or 0), reason)


def skips(cases: Iterable[Case]) -> list[tuple[str, int]]:
    """How many tests were skipped for each reason, largest number first."""
    return Counter(case.skipped for case in cases if case.skipped).most_common()


def slowest_files(cases: Iterable[Case]) -> list[tuple[str, float]]:
    """Seconds of all tests of each file, most first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in cases:
        seconds[f"{case.suite}: {case.name.partition('::')[0]}"] += case.seconds
    return sorted(seconds.items(), key=lambda each: -each[1])
