"""Which suites are good already, so that `make check-all` need not run them again."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from checks import changes, records
from checks.records import Record
from checks.suites import CheckError, Suite

FILE = Path("build/check-all.json")


class Whole:
    """The last result of each suite, from any run. Kept in a file of the tree."""

    def __init__(self, tree: Path, known: list[Suite]) -> None:
        self._file = tree / FILE
        self._order = [each.name for each in known]
        self._commit = records.commit_of(tree)
        self._kept = {each.suite: each for each in records.read_records(self._file)}

    @property
    def records(self) -> list[Record]:
        """All results, in the order of tests/suites.toml."""
        return [self._kept[name] for name in self._order if name in self._kept]

    def keep(self, record: Record) -> None:
        """Note a result, for the state that the tree had when this object was made."""
        self._kept[record.suite] = Record(**{**vars(record), "commit": self._commit})
        records.write_records(self._file, self.records)

    def good(self, tree: Path, known: list[Suite]) -> Iterator[tuple[Suite, Record]]:
        """Suites that were good, and that no later change concerns.

        The common suites concern every change, so they count only for the same state of the tree.
        """
        imports: changes.Imports | None = None
        for suite in known:
            record = self._kept.get(suite.name)
            if record is None or not record.is_good:
                continue
            if record.commit != self._commit:
                changed = None if suite.tier == "common" else _changed(tree, record.commit)
                if changed is None or changes.unknown(changed, known):
                    continue
                imports = imports or changes.Imports(tree)
                imported = imports.files_of(suite.folders) if suite.imports else set()
                if changes.reason_of(suite, changed, imported):
                    continue
            yield suite, record


def _changed(tree: Path, commit: str) -> Iterable[str] | None:
    """What differs from a commit. None if the commit is unknown, or the tree had changes then."""
    try:
        return changes.changed_files(tree, commit)
    except CheckError:
        return None
