"""Reads a result's folder; samples are read only when they are asked for.

A damaged or missing part is reported as a problem, and all other parts can still be read.
"""

import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.labs.study.result.layout import (
    MANIFEST,
    OUTPUTS,
    SCHEMA,
    SUMMARY,
    TRIALS,
    StoredTrial,
    samples_file,
    trial_file,
)
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.schema import problem_of

_REMEASURE = "measure the trial again with vicinal study run --resume"
_TRIAL_NAME = re.compile(r"[0-9]{6}[.]json")


@dataclass(frozen=True)
class Result:
    """A folder's content. Samples are read from the disk at each request."""

    folder: Path
    manifest: dict[str, Any]
    trials: list[StoredTrial]
    """Readable trials, including failed ones, by number."""
    problems: list[VicinalError] = field(default_factory=list)
    """Errors for damaged and missing trials."""

    def series(
        self,
        stored: StoredTrial,
        *,
        sizes: Collection[int] | None = None,
        ranks: Collection[int] | None = None,
    ) -> Iterator[Series]:
        """The samples of a trial, series by series, of these sizes and ranks or of all.

        Raises VicinalError if the file of samples is missing or damaged.
        """
        from vicinal.labs.study.result.parquet import from_parquet  # heavy

        wanted = [
            (group, facts)
            for group, facts in enumerate(stored.series)
            if (sizes is None or facts.size in sizes) and (ranks is None or facts.rank in ranks)
        ]
        if not wanted:
            return
        yield from from_parquet(self._checked(stored), wanted)

    def summary(self) -> dict[str, Any]:
        """The stored summary. Raises VicinalError if there is none."""
        return _read(self.folder / SUMMARY, "summary", "create it again with vicinal study report")

    def output(self, stored: StoredTrial, name: str) -> str:
        """A stored output of a failed trial."""
        try:
            return (self.folder / OUTPUTS / name).read_text(errors="replace")
        except OSError as error:
            raise VicinalError(
                f"output {name} of trial {stored.number} cannot be read "
                f"({describe_os_error(error)})",
                "use the result without it: nothing else depends on it",
            ) from error

    def _checked(self, stored: StoredTrial) -> bytes:
        """The content of the samples' file, after its checksum was checked."""
        path = samples_file(self.folder, stored.number)
        remedy = "copy the file again from an undamaged result, or leave out the trial"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise VicinalError(
                f"{path} cannot be read ({describe_os_error(error)})", remedy
            ) from error
        if zlib.crc32(content) != stored.samples_crc32:
            raise VicinalError(f"{path} is damaged: its checksum does not match", remedy)
        return content


def open_result(folder: Path) -> Result:
    """Read a folder, without its samples.

    Raises VicinalError if the folder is not a result, has a newer schema, or has no manifest.
    """
    manifest = _read(folder / MANIFEST, "manifest", "name a folder that vicinal study run wrote")
    trials, problems = [], []
    numbers = trial_numbers(folder)
    for number in numbers:
        path = trial_file(folder, number)
        try:
            stored = StoredTrial.from_json(_read(path, "trial", _REMEASURE))
            if stored.number != number:
                raise VicinalError(f"{path} contains the number {stored.number}", _REMEASURE)
            trials.append(stored)
        except VicinalError as error:
            problems.append(error)
    problems += _gaps(folder, numbers)
    return Result(folder, manifest, trials, problems)


def trial_numbers(folder: Path) -> list[int]:
    """The numbers of the existing trials, including damaged ones, in order."""
    names = (path.name for path in (folder / TRIALS).glob("*.json"))
    return sorted(int(name.partition(".")[0]) for name in names if _TRIAL_NAME.fullmatch(name))


def _gaps(folder: Path, numbers: list[int]) -> list[VicinalError]:
    """Errors for missing trials: numbers have no gaps, and a summary knows how many trials
    existed.
    """
    if not (folder / TRIALS).is_dir():
        return [VicinalError(f"{folder / TRIALS} is missing", "copy the whole folder again")]
    last = numbers[-1] if numbers else 0
    if (folder / SUMMARY).is_file():
        with suppress(VicinalError):  # reported when the summary is read
            last = max(last, _read(folder / SUMMARY, "summary", "")["trials"])
    return [
        VicinalError(f"{trial_file(folder, number)} is missing", _REMEASURE)
        for number in sorted(set(range(1, last + 1)).difference(numbers))
    ]


def _read(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    """Read a JSON file that fits its schema."""
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise VicinalError(f"{path} cannot be read ({describe_os_error(error)})", remedy) from error
    except ValueError as error:
        raise VicinalError(f"{path} is damaged ({error})", remedy) from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise VicinalError(
            f"{path} was written by a newer Vicinal (schema {schema}; this version reads up to "
            f"{SCHEMA})",
            "read it with the version that manifest.json names under versions.vicinal",
        )
    problem = problem_of(values, kind)
    if problem is not None:
        raise VicinalError(f"{path} is damaged ({problem})", remedy)
    assert isinstance(values, dict)
    return values
