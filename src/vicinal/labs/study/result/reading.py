"""Reading a result's folder: what is known at once, samples when they are asked for.

What is damaged or missing is a problem of its own, and all the rest can still be read.
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

_REMEASURE = "vicinal study run --resume measures it again"
_TRIAL_NAME = re.compile(r"[0-9]{6}[.]json")


@dataclass(frozen=True)
class Result:
    """A folder's content. Samples are read each time that they are asked for."""

    folder: Path
    manifest: dict[str, Any]
    trials: list[StoredTrial]
    """Those that can be read, failed ones too, by number."""
    problems: list[VicinalError] = field(default_factory=list)
    """Trials that are damaged or missing."""

    def series(
        self,
        stored: StoredTrial,
        *,
        sizes: Collection[int] | None = None,
        ranks: Collection[int] | None = None,
    ) -> Iterator[Series]:
        """The samples of a trial, one series after the other, of these sizes and ranks or of all.

        Raises VicinalError where the file of samples is missing or damaged.
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
        """What was written as the summary. Raises VicinalError where there is none."""
        return _read(self.folder / SUMMARY, "summary", "vicinal study report makes it anew")

    def output(self, stored: StoredTrial, name: str) -> str:
        """A kept output of a trial that failed."""
        try:
            return (self.folder / OUTPUTS / name).read_text(errors="replace")
        except OSError as error:
            raise VicinalError(
                f"output {name} of trial {stored.number} cannot be read "
                f"({describe_os_error(error)})",
                "the rest of the result is as good without it",
            ) from error

    def _checked(self, stored: StoredTrial) -> bytes:
        """The samples' file: it is compressed, so all of it can be read for a part of it."""
        path = samples_file(self.folder, stored.number)
        remedy = "copy it again from where it was whole, or leave that trial out"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise VicinalError(
                f"{path} cannot be read ({describe_os_error(error)})", remedy
            ) from error
        if zlib.crc32(content) != stored.samples_crc32:
            raise VicinalError(f"{path} is damaged: its checksum does not fit", remedy)
        return content


def open_result(folder: Path) -> Result:
    """Read what a folder has, without its samples.

    Raises VicinalError where it is no result, or one of a newer schema, or without its manifest.
    """
    manifest = _read(
        folder / MANIFEST, "manifest", "name a folder that vicinal study run has written"
    )
    trials, problems = [], []
    numbers = trial_numbers(folder)
    for number in numbers:
        path = trial_file(folder, number)
        try:
            stored = StoredTrial.from_json(_read(path, "trial", _REMEASURE))
            if stored.number != number:
                raise VicinalError(f"{path} has the number {stored.number} in it", _REMEASURE)
            trials.append(stored)
        except VicinalError as error:
            problems.append(error)
    problems += _gaps(folder, numbers)
    return Result(folder, manifest, trials, problems)


def trial_numbers(folder: Path) -> list[int]:
    """The numbers of the trials that there are, damaged ones too, in order."""
    names = (path.name for path in (folder / TRIALS).glob("*.json"))
    return sorted(int(name.partition(".")[0]) for name in names if _TRIAL_NAME.fullmatch(name))


def _gaps(folder: Path, numbers: list[int]) -> list[VicinalError]:
    """Trials are numbered without gaps, and a summary knows how many there were."""
    if not (folder / TRIALS).is_dir():
        return [VicinalError(f"{folder / TRIALS} is missing", "copy the whole folder again")]
    last = numbers[-1] if numbers else 0
    if (folder / SUMMARY).is_file():
        with suppress(VicinalError):  # said when it is asked for
            last = max(last, _read(folder / SUMMARY, "summary", "")["trials"])
    return [
        VicinalError(f"{trial_file(folder, number)} is missing", _REMEASURE)
        for number in sorted(set(range(1, last + 1)).difference(numbers))
    ]


def _read(path: Path, kind: str, remedy: str) -> dict[str, Any]:
    """A JSON file that fits its schema."""
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise VicinalError(f"{path} cannot be read ({describe_os_error(error)})", remedy) from error
    except ValueError as error:
        raise VicinalError(f"{path} is damaged ({error})", remedy) from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise VicinalError(
            f"{path} was written by a newer Vicinal (schema {schema}; this one knows up to "
            f"{SCHEMA})",
            "read it with that version: manifest.json names it under versions.vicinal",
        )
    problem = problem_of(values, kind)
    if problem is not None:
        raise VicinalError(f"{path} is damaged ({problem})", remedy)
    assert isinstance(values, dict)
    return values
