"""The helper as a program: `python3 -I DIRECTORY`, in any directory.

Python treats a directory that it runs as a set of top-level modules. These modules are a package,
because Vicinal imports them as one. So this program turns them into a package first.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

_NAME = "vicinal_privileged"


def _service() -> int:
    sys.path.pop(0)  # the directory: its modules must not shadow Python's own
    # The package's __init__ has no code to run.
    spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("__init__.py"))
    assert spec is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    status: int = importlib.import_module(f"{_NAME}.service").main()
    return status


if __name__ == "__main__":
    sys.exit(_service())
