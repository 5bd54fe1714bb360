"""Writing a result's folder, trial by trial, so that nothing measured is lost.

A trial counts from the moment when its file in trials/ has its name; its samples and outputs are
there before. Whatever ends the writer in the middle (Ctrl-C, a kill, a full disk) costs that trial
and no other.
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
    """The one writer of a folder, from opening it to close(); a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _lock(folder)

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any]) -> Self:
        """Begin a result in a folder that is empty or not there.

        Raises VicinalError where it has something in it, or cannot be written.
        """
        writer = cls(folder)
        try:
            if any(path.name != ".lock" for path in folder.iterdir()):
                raise VicinalError(
                    f"{folder} is not empty",
                    "go on with what is there by --resume, or choose another folder",
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
        """Go on with a result, and return what it has.

        Raises VicinalError where there is none, or where another is writing to it.
        """
        open_result(folder)  # before anything is changed in what may be no result
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
        """Write the manifest anew, with what was found out since."""
        _check(manifest, "manifest")
        write_json(self.folder / MANIFEST, manifest)

    def add(self, trial: Trial, series: Sequence[Series] = ()) -> StoredTrial:
        """Keep a trial and its samples; when this returns, they are on the disk.

        Raises VicinalError where they cannot be written; all trials before are kept.
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
        """Keep a trial that failed, why it did, and what it wrote.

        `outputs` are bytes by a word for what they are: `stdout`, `stderr`, `log`.
        """
        number = self._next()
        names = []
        for kind, content in outputs.items():
            names.append(f"{number:06}.{kind}")
            write_whole(self.folder / OUTPUTS / names[-1], content)
        return self._commit(StoredTrial(number, trial, failure=failure, outputs=tuple(names)))

    def write_summary(self, summary: Mapping[str, Any], units: Mapping[str, str]) -> None:
        """Write the summary, with the units of all that is in it, in place of any before."""
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
        """Remove what a writer that was killed has left: parts, and samples without a trial."""
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
    """Says in our words why a folder cannot be changed."""
    try:
        yield
    except OSError as error:
        raise VicinalError(
            f"no result can be written to {folder} ({describe_os_error(error)})",
            "choose a folder on a disk with room that this user may write to",
        ) from error


def _lock(folder: Path) -> int | None:
    """Keep other writers out. The kernel drops the lock of a process that ends."""
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
    """What is written fits its schema: anything else is a mistake of this program's."""
    problem = problem_of(values, kind)
    if problem is not None:
        raise ValueError(f"{kind}: {problem}")
