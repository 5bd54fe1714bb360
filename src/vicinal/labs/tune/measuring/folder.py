"""The folder of a search's result, written so that no measurement is lost.

    manifest.json   the host, versions, variables, knobs and their values, the options
    spec.yaml       the tuning file, unchanged
    trials.jsonl    one trial a line, on the disk before the next trial begins
    outputs/        output of failed launches
    result.json     the result; exists after the search has ended

docs/reference/tuning-file.md describes the contents.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock
from vicinal.base.journal import LineJournal
from vicinal.labs.study.result.whole import write_json, write_whole
from vicinal.labs.tune.search.trial import Trial, read_trials

SCHEMA = 1
"""Version of all these files; readers refuse newer versions."""

MANIFEST = "manifest.json"
SPEC = "spec.yaml"
TRIALS = "trials.jsonl"
OUTPUTS = "outputs"
RESULT = "result.json"


class SearchFolder:
    """The only writer of a folder, until close(); a context manager."""

    def __init__(self, folder: Path) -> None:
        """Raises VicinalError if another command writes to the folder, or it cannot be created."""
        self.folder = folder
        self._trials = LineJournal(folder / TRIALS)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock: int | None = lock(folder)
        except BlockingIOError:
            raise VicinalError(
                f"another search is writing to {folder}",
                "wait until it ends, or choose another folder",
            ) from None
        except OSError as error:
            raise VicinalError(
                f"no result can be written to {folder} ({describe_os_error(error)})",
                "choose a folder that this user can write, on a disk with room",
            ) from error

    @classmethod
    def begin(cls, folder: Path, manifest: Mapping[str, Any], spec: str) -> Self:
        """Begin a new result. Raises VicinalError if the folder is not empty."""
        writer = cls(folder)
        try:
            if any(folder.iterdir()):
                raise VicinalError(
                    f"{folder} is not empty",
                    "continue its search with --resume, or choose another folder",
                )
            write_whole(folder / SPEC, spec.encode())
            write_json(folder / MANIFEST, manifest)
        except BaseException:
            writer.close()
            raise
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def amend(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest again, with facts that are known later."""
        write_json(self.folder / MANIFEST, manifest)

    def trials(self) -> list[Trial]:
        """The trials in the folder. Raises VicinalError for an invalid line."""
        return read_trials(self._trials.file) if self._trials.file.exists() else []

    def add(self, trial: Trial) -> None:
        """Append a trial and wait until it is on the disk. Raises VicinalError if that fails."""
        try:
            self._trials.append(trial.to_dict())
        except OSError as error:
            raise VicinalError(
                f"{self._trials.file} cannot be written ({describe_os_error(error)}); all earlier "
                "trials are kept",
                "make room on its disk, and continue with --resume",
            ) from error

    def keep_outputs(self, number: int, outputs: Mapping[str, bytes]) -> list[str]:
        """Write the outputs of trial `number`, by kind of output; returns the names of the
        files.
        """
        names = []
        for kind, content in outputs.items():
            names.append(f"{OUTPUTS}/{number:06}.{kind}")
            write_whole(self.folder / names[-1], content)
        return names

    def finish(self, result: Mapping[str, Any]) -> Path:
        """Write result.json; returns its path."""
        write_json(self.folder / RESULT, {"schema": SCHEMA, **result})
        return self.folder / RESULT


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a search. Raises VicinalError if the folder has none."""
    return _read(folder / MANIFEST, "name a folder that `vicinal tune run` has written")


def read_result(folder: Path) -> dict[str, Any]:
    """The result of a search. Raises VicinalError if the search has not ended, or there is none."""
    manifest = read_manifest(folder)
    if not (folder / RESULT).exists():
        trials = folder / TRIALS
        kept = len(read_trials(trials)) if trials.exists() else 0
        raise VicinalError(
            f"the search {manifest['name']!r} has not ended: {kept} trials are kept",
            f"continue it with `vicinal tune run {manifest['asked']['spec']} --resume --output "
            f"{folder}`",
        )
    return _read(folder / RESULT, "continue the search with --resume: it writes the file again")


def _read(path: Path, remedy: str) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
        schema = values["schema"]
    except OSError as error:
        raise VicinalError(f"{path} cannot be read ({describe_os_error(error)})", remedy) from error
    except (ValueError, KeyError, TypeError) as error:
        raise VicinalError(f"{path} is damaged ({error})", remedy) from error
    if not isinstance(schema, int) or schema > SCHEMA:
        raise VicinalError(
            f"{path} was written by a newer Vicinal (schema {schema}; this one knows up to "
            f"{SCHEMA})",
            "read it with the version that manifest.json names under versions.vicinal",
        )
    found: dict[str, Any] = values
    return found
