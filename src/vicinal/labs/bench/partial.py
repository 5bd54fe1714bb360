"""Finished groups of a measurement, kept so that one that was interrupted can go on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.base.files import Durability, write_atomically


@dataclass
class Partial:
    """The finished groups in a directory, one file for each.

    Rows are worth something only beside rows that were measured under the same conditions,
    so each file holds those, and only files with the same ones are used again.
    """

    directory: Path
    conditions: Mapping[str, Any]
    """Versions, cores and amounts: what has to be equal."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows that were found, by name."""
    differences: list[str] = field(default_factory=list)
    """Why files were not used, as phrases."""

    def load(self) -> None:
        """Find what can be used again, and say in `differences` what cannot."""
        for path in sorted(self.directory.glob("*.json")):
            try:
                kept = json.loads(path.read_text())
                before, rows = kept["conditions"], kept["rows"]
            except (OSError, ValueError, KeyError, TypeError):
                self.differences.append(f"{path.name} cannot be read")
                continue
            reasons = _differences(before, self.conditions)
            # Whoever goes on has mended what went wrong, or wants to see it again.
            reasons += [f"{row['name']} failed" for row in rows if row.get("failed")]
            if reasons:
                self.differences += [f"{path.stem}: {each}" for each in reasons]
            else:
                self.rows |= {row["name"]: row for row in rows}

    def clear(self) -> None:
        """Forget all of it."""
        for path in self.directory.glob("*.json"):
            path.unlink(missing_ok=True)

    def keep(self, group: str, rows: list[dict[str, Any]]) -> None:
        """Keep the rows of a finished group."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{group}.json"
        kept = {"conditions": dict(self.conditions), "rows": rows}
        text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, text, Durability.NONE)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} was {before.get(name, 'unknown')}, is {now.get(name, 'unknown')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
