"""Python's byte code for guests, compiled on the host, because TCG takes a minute for it."""

import importlib.util
import py_compile
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

_CACHE = "__pycache__"
_HEADER_BYTES = 16
_UNCHECKED = 0b01
"""Flag in byte code files: valid whatever its source is, by PEP 552."""


def has_our_python(system: Path) -> bool:
    """Whether the Python of a guest's file system understands this Python's byte code."""
    return (system / f"usr/bin/python3.{sys.version_info.minor}").exists()


def compile_once(system: Path) -> None:
    """Add byte code to the Python files of a guest's file system, if there is none."""
    if not has_our_python(system) or any(system.rglob(_CACHE)):
        return
    for source in [*system.rglob("*.py")]:
        if "tests" not in source.parts:
            _compile(source, source.parent / _CACHE / _name(source))


def compiled(sources: list[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Byte code files for files by their paths in the guest, with the byte code's paths.

    Each file exists until the next one is requested.
    """
    with TemporaryDirectory(prefix="vicinal-") as name:
        for source, path in sources:
            target = Path(name) / _name(source)
            found = _compiled_before(source)
            if found is None:
                _compile(source, target)
            else:
                target.write_bytes(found)
            yield target, str(Path(path).parent / _CACHE / target.name)


def _name(source: Path) -> str:
    return f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def _compiled_before(source: Path) -> bytes | None:
    """This host's byte code of the present file, for guests that have no time of the source."""
    try:
        found = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        status = source.stat()
    except OSError:
        return None
    fresh = struct.pack(
        "<4sLLL", importlib.util.MAGIC_NUMBER, 0, int(status.st_mtime), status.st_size
    )
    if found[:_HEADER_BYTES] != fresh:
        return None
    unchecked = struct.pack("<4sLQ", importlib.util.MAGIC_NUMBER, _UNCHECKED, 0)
    return unchecked + found[_HEADER_BYTES:]


def _compile(source: Path, target: Path) -> None:
    # Without checking the source's time, which a guest's file system does not keep.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), quiet=2, invalidation_mode=mode)
