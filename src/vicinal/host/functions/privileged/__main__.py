"""The helper as a program: `python3 -I DIRECTORY`, wherever the directory was installed.

Python takes a directory that it runs for a heap of modules. These are a package, as which Vicinal
itself imports them, so they are made one first.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

_NAME = "vicinal_privileged"


def _service() -> int:
    sys.path.pop(0)  # the directory: nothing in it is to be taken for a module of Python's
    # Its __init__ has nothing to run.
    spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("__init__.py"))
    assert spec is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(spec)
    status: int = importlib.import_module(f"{_NAME}.service").main()
    return status


if __name__ == "__main__":
    sys.exit(_service())
