"""The record that a run writes: a new folder, or a folder that the run resumes."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.provenance import changes, now
from vicinal.labs.study.file.json_form import study_to_json
from vicinal.labs.study.file.model import Study
from vicinal.labs.study.result.layout import StoredTrial
from vicinal.labs.study.result.manifest import make_manifest
from vicinal.labs.study.result.reading import Result
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter

_LONGEST_SEED = 32

_CHANGES = ("unavailable",)
"""Keys of a study that may differ at a resumption, because they depend on the machine."""
_OF_THE_HOST = ("cpu", "cores", "threads", "memory_bytes", "virtual")


class Record:
    """A result folder that is written, and its manifest."""

    def __init__(
        self,
        writer: ResultWriter,
        manifest: dict[str, Any],
        before: Result | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.writer = writer
        self.manifest = manifest
        self._before = before
        self.notes = notes
        """Differences from the earlier run, as phrases for people."""

    @classmethod
    def begin(cls, folder: Path, study: Study, seed: int | None) -> "Record":
        """Create a record in a folder that is empty or does not exist. Raises VicinalError."""
        chosen = secrets.randbits(_LONGEST_SEED) if seed is None else seed
        manifest = make_manifest(study_to_json(study), _mpis(study), seed=chosen)
        manifest["clusters"] = f"study-{secrets.token_hex(4)}"
        return cls(ResultWriter.create(folder, manifest), manifest)

    @classmethod
    def resume(cls, folder: Path, study: Study, seed: int | None) -> "Record":
        """Resume a record of the same study. Raises VicinalError if the folder has another
        study.
        """
        writer, result = ResultWriter.resume(folder)
        try:
            manifest = dict(result.manifest)
            _check_same(folder, manifest, study, seed)
            fresh = make_manifest(study_to_json(study), _mpis(study), seed=manifest["seed"])
            notes = differences(manifest, fresh)
            manifest["study"] = fresh["study"]
            manifest.setdefault("clusters", f"study-{secrets.token_hex(4)}")
            manifest["resumed"] = [
                *manifest.get("resumed", ()),
                {"at": now(), "versions": fresh["versions"], "differences": notes},
            ]
            notes = [*notes, *map(str, result.problems)]
            return cls(writer, manifest, result, notes)
        except BaseException:
            writer.close()
            raise

    @property
    def trials(self) -> list[StoredTrial]:
        """The trials of earlier runs, including failed ones."""
        return [] if self._before is None else self._before.trials

    def series(self, stored: StoredTrial) -> list[Series]:
        """The samples of an earlier trial; empty if they are damaged, which the report says."""
        with suppress(VicinalError):
            if self._before is not None:
                return list(self._before.series(stored))
        return []

    @property
    def seed(self) -> int:
        """The seed of all random choices."""
        return int(self.manifest["seed"])

    @property
    def clusters(self) -> str:
        """The prefix of the names of the run's clusters."""
        return str(self.manifest["clusters"])

    def amend(self, **values: object) -> None:
        """Add values to the manifest, and write it."""
        self.manifest |= values
        self.writer.amend(self.manifest)


def _mpis(study: Study) -> list[Any]:
    return sorted({each.mpi for each in study.environments})


def _check_same(folder: Path, manifest: Mapping[str, Any], study: Study, seed: int | None) -> None:
    before, after = manifest["study"], study_to_json(study)
    if before["name"] != study.name:
        raise VicinalError(
            f"{folder} has a result of the study {before['name']}, not of {study.name}",
            "choose another folder with --output",
        )
    changed = sorted(
        key for key in {*before, *after} - {*_CHANGES} if before.get(key) != after.get(key)
    )
    if changed:
        raise VicinalError(
            f"the study {study.name} changed since {folder} was begun, in its "
            f"{' and '.join(changed)}",
            "start a new run in another folder with --output, or restore the study from the "
            "folder's manifest.json",
        )
    if seed is not None and seed != manifest["seed"]:
        raise VicinalError(
            f"{folder} was begun with the seed {manifest['seed']}, not {seed}",
            "leave out --seed, or start a new run in another folder with --output",
        )


def differences(before: Mapping[str, Any], now_is: Mapping[str, Any]) -> list[str]:
    """What differs on this machine from the earlier run, as phrases."""
    pairs = [
        (f"{name} of the host", before["host"].get(name), now_is["host"].get(name))
        for name in _OF_THE_HOST
    ]
    for kind, words in (("versions", "version of {}"), ("variables", "the variable {}")):
        pairs += [
            (words.format(name), before[kind].get(name), now_is[kind].get(name))
            for name in sorted({*before[kind], *now_is[kind]})
        ]
    return changes(pairs, "unset")
