"""The source tree that this package runs from."""

from pathlib import Path

import vicinal


def checkout() -> Path | None:
    """The source tree that this package runs from, or None where it is installed without one."""
    tree = Path(vicinal.__file__).resolve().parent.parent
    return tree if (tree / "provider").is_dir() else None
