"""The planted faults of tests/planted/*.toml: read them, find their locations, and plant them."""

import hashlib
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from planted.sources import Location, Texts

LANGUAGES = {"c": (".c", ".h"), "python": (".py",)}
SOURCES = ("guest", "provider", "slurm", "src")


class FaultError(Exception):
    """A fault that cannot be planted. The message says why and what to do."""


@dataclass(frozen=True)
class Fault:
    """One change of the product that a test must find."""

    id: str
    area: str  # the file's name without .toml
    language: str
    function: str
    expression: str
    replacement: str
    effect: str  # what a user would see
    suites: tuple[str, ...]  # in the order in which they run
    near: Mapping[str, str] = field(default_factory=dict)  # a suite's tests that run first

    @property
    def digest(self) -> str:
        """Changes with the fault. A result with another digest belongs to another fault."""
        words = (self.language, self.function, self.expression, self.replacement)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def read_faults(folder: Path) -> list[Fault]:
    """The faults of all areas. Each file is an area. Its `suites` serve faults that name none.

    Raises FaultError if a key is missing, unknown or used twice.
    """
    faults: list[Fault] = []
    for file in sorted(folder.glob("*.toml")):
        document = tomllib.loads(file.read_text())
        for entry in document["fault"]:
            suites = tuple(entry.pop("suites", document.get("suites", ())))
            try:
                fault = Fault(area=file.stem, suites=suites, **entry)
            except TypeError as error:
                raise FaultError(f"{file.name}: {entry.get('id')}: {error}") from None
            if fault.language not in LANGUAGES:
                raise FaultError(f"{file.name}: {fault.id}: language is c or python")
            if any(fault.id == other.id for other in faults):
                raise FaultError(f"{file.name}: the id {fault.id} is used twice")
            faults.append(fault)
    return faults


class Sources:
    """The product's sources in a tree."""

    def __init__(self, tree: Path) -> None:
        suffixes = {suffix for each in LANGUAGES.values() for suffix in each}
        self._texts = Texts(
            file
            for folder in SOURCES
            for file in sorted((tree / folder).rglob("*"))
            if file.suffix in suffixes and file.is_file()
        )

    def location(self, fault: Fault) -> Location:
        """The location of a fault. Raises FaultError unless there is exactly one such location."""
        locations = self._texts.find(LANGUAGES[fault.language], fault.function, fault.expression)
        if len(locations) != 1:
            raise FaultError(
                f"{fault.id}: {fault.function}() has `{fault.expression}` {len(locations)} times "
                "instead of once: change the fault in "
                f"tests/planted/{fault.area}.toml as the code was changed"
            )
        return locations[0]

    def planted(self, fault: Fault) -> tuple[Path, str]:
        """The file that a fault changes, and its text with the fault."""
        location = self.location(fault)
        text = self._texts.of[location.file]
        line = text[text.rfind("\n", 0, location.start) + 1 : location.start]
        indent = line[: len(line) - len(line.lstrip())]
        replacement = textwrap.indent(textwrap.dedent(fault.replacement).strip(), indent).lstrip()
        return location.file, text[: location.start] + replacement + text[location.end :]
