"""The source tree that this package runs from."""

from pathlib import Path

import vicinal


def checkout() -> Path | None:
    """The source tree that this package runs from, or None where it is installed without one."""
    sources = Path(vicinal.__file__).resolve().parents[1]
    tree = sources.parent
    return tree if sources.name == "src" and (tree / "provider").is_dir() else None
