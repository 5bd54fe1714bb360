"""Python's byte code for guests, made here: where TCG emulates, compiling takes them a minute."""

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
"""In the flags of a file of byte code: it holds whatever its source is, by PEP 552."""


def has_our_python(system: Path) -> bool:
    """Whether the Python of a guest's file system understands the byte code of this one."""
    return (system / f"usr/bin/python3.{sys.version_info.minor}").exists()


def compile_once(system: Path) -> None:
    """Put byte code beside the Python files of a guest's file system, if there is none."""
    if not has_our_python(system) or any(system.rglob(_CACHE)):
        return
    for source in [*system.rglob("*.py")]:
        if "tests" not in source.parts:
            _compile(source, source.parent / _CACHE / _name(source))


def compiled(sources: list[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    """Byte code of files, and where it belongs, by the place in the guest that these have.

    It is there until the next one is asked for.
    """
    with TemporaryDirectory(prefix="vicinal-") as name:
        for source, place in sources:
            target = Path(name) / _name(source)
            found = _compiled_before(source)
            if found is None:
                _compile(source, target)
            else:
                target.write_bytes(found)
            yield target, str(Path(place).parent / _CACHE / target.name)


def _name(source: Path) -> str:
    return f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def _compiled_before(source: Path) -> bytes | None:
    """What this host has compiled of a file as it is now, for guests that have no source's time."""
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
    # Without a look at the source's time, which a guest's file system has not.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), quiet=2, invalidation_mode=mode)
