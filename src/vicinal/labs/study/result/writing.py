"""Writes a result's folder, trial by trial, so that no measurement is lost.

A trial counts from the moment when its file in trials/ has its final name; its samples and outputs
exist before. If the writer is interrupted (Ctrl-C, a kill, a full disk), only the current trial is
lost.
"""

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import OWN_FILE, lock
from vicinal.labs.provenance import now
from vicinal.labs.study.result.layout import (
    MANIFEST,
    OUTPUTS,
    PART,
    SAMPLES,
    SCHEMA,
    SUMMARY,
    TRIALS,
    SeriesFacts,
    StoredTrial,
    Trial,
    samples_file,
    trial_file,
)
from vicinal.labs.study.result.reading import Result, open_result, trial_numbers
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.schema import problem_of
from vicinal.labs.study.result.whole import write_json, write_whole


class ResultWriter:
    """The only writer of a folder, from construction to close(); a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _lock(folder)

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any]) -> Self:
        """Create a result in a folder that is empty or does not exist.

        Raises VicinalError if the folder is not empty, or cannot be written.
        """
        writer = cls(folder)
        try:
            if any(path.name != ".lock" for path in folder.iterdir()):
                raise VicinalError(
                    f"{folder} is not empty",
                    "resume the result in it with --resume, or choose another folder",
                )
            _check(manifest, "manifest")
            with _changing(folder):
                for name in (TRIALS, SAMPLES, OUTPUTS):
                    (folder / name).mkdir()
            write_json(folder / MANIFEST, dict(manifest))
        except BaseException:
            writer.close()
            raise
        return writer

    @classmethod
    def resume(cls, folder: Path) -> tuple[Self, Result]:
        """Open a result for more trials, and return its content.

        Raises VicinalError if there is no result, or if another process writes to it.
        """
        open_result(folder)  # changes nothing in a folder that is not a result
        writer = cls(folder)
        try:
            with _changing(folder):
                writer._sweep()
            return writer, open_result(folder)
        except BaseException:
            writer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock of the folder; may be called again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def amend(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest again, with facts found since."""
        _check(manifest, "manifest")
        write_json(self.folder / MANIFEST, manifest)

    def add(self, trial: Trial, series: Sequence[Series] = ()) -> StoredTrial:
        """Store a trial and its samples; they are on the disk when this returns.

        Raises VicinalError if they cannot be written; all earlier trials stay stored.
        """
        from vicinal.labs.study.result.parquet import to_parquet  # heavy

        series = [each for each in series if len(each.nanoseconds) > 0]
        facts = tuple(
            SeriesFacts(each.size, each.rank, each.messages, len(each.nanoseconds))
            for each in series
        )
        stored = StoredTrial(self._next(), trial, series=facts)
        if series:
            content = to_parquet(stored, series)
            stored = replace(stored, samples_crc32=zlib.crc32(content))
            write_whole(samples_file(self.folder, stored.number), content)
        return self._commit(stored)

    def add_failure(self, trial: Trial, failure: str, outputs: Mapping[str, bytes]) -> StoredTrial:
        """Store a failed trial, its reason, and its outputs.

        `outputs` are bytes by kind: `stdout`, `stderr`, `log`.
        """
        number = self._next()
        names = []
        for kind, content in outputs.items():
            names.append(f"{number:06}.{kind}")
            write_whole(self.folder / OUTPUTS / names[-1], content)
        return self._commit(StoredTrial(number, trial, failure=failure, outputs=tuple(names)))

    def write_summary(self, summary: Mapping[str, Any], units: Mapping[str, str]) -> None:
        """Write the summary and the units of its values, replacing an earlier summary."""
        head = {
            "schema": SCHEMA,
            "created": now(),
            "trials": len(trial_numbers(self.folder)),
            "units": dict(units),
        }
        values = {**summary, **head}
        _check(values, "summary")
        write_json(self.folder / SUMMARY, values)

    def _next(self) -> int:
        numbers = trial_numbers(self.folder)
        return numbers[-1] + 1 if numbers else 1

    def _commit(self, stored: StoredTrial) -> StoredTrial:
        values = stored.to_json()
        _check(values, "trial")
        write_json(trial_file(self.folder, stored.number), values)
        return stored

    def _sweep(self) -> None:
        """Remove what a killed writer left: incomplete files, and samples without a trial."""
        whole = {f"{number:06}" for number in trial_numbers(self.folder)}
        for directory in (
            self.folder,
            *(self.folder / name for name in (TRIALS, SAMPLES, OUTPUTS)),
        ):
            directory.mkdir(exist_ok=True)
            for path in directory.glob(f"*{PART}"):
                path.unlink(missing_ok=True)
        for name in (SAMPLES, OUTPUTS):
            for path in (self.folder / name).iterdir():
                if path.stem not in whole:
                    path.unlink(missing_ok=True)


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """Turns errors about the folder into a VicinalError."""
    try:
        yield
    except OSError as error:
        raise VicinalError(
            f"no result can be written to {folder} ({describe_os_error(error)})",
            "choose a folder that this user may write to, on a disk with free space",
        ) from error


def _lock(folder: Path) -> int | None:
    """Keep other writers out. The kernel drops the lock when the process ends."""
    with _changing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return lock(folder / ".lock", OWN_FILE, 0o644)
        except BlockingIOError:
            raise VicinalError(
                f"another study is writing to {folder}",
                "wait for its end, or choose another folder",
            ) from None


def _check(values: Mapping[str, Any], kind: str) -> None:
    """Raise ValueError if values do not fit their schema, which is an error in this program."""
    problem = problem_of(values, kind)
    if problem is not None:
        raise ValueError(f"{kind}: {problem}")
