"""The source tree that contains this package."""

from pathlib import Path

import vicinal


def checkout() -> Path | None:
    """Return the source tree that this package runs from; None if it is installed without a source
    tree."""
    sources = Path(vicinal.__file__).resolve().parents[1]
    tree = sources.parent
    return tree if sources.name == "src" and (tree / "provider").is_dir() else None
