"""Installs and removes the option --vicinal; each file is written completely or not at all.

The line in plugstack.conf is added last and removed first, because the file that it includes must
exist while the line does.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.files import Durability, write_atomically
from vicinal.integrations.slurm.files import Files


@dataclass(frozen=True)
class Wanted:
    """The wanted contents of the two files of Vicinal."""

    include: str
    variables: str


def install(files: Files, wanted: Wanted) -> list[Path]:
    """Write the files that are missing or differ; returns the files that changed."""
    changed = []
    for path, text in ((files.variables, wanted.variables), (files.include, wanted.include)):
        path.parent.mkdir(parents=True, exist_ok=True)
        if _text_of(path) != text:
            _write(path, text)
            changed.append(path)
    if files.is_fetched:
        return changed
    before = _text_of(files.plugstack)
    if not files.is_included(before):
        if before and not before.endswith("\n"):
            before += "\n"
        _write(files.plugstack, f"{before}{files.line}\n")
        changed.append(files.plugstack)
    return changed


def remove(files: Files) -> list[Path]:
    """Remove Vicinal's files and the line in plugstack.conf; returns the files that changed.

    Lines and files of others stay.
    """
    changed = []
    is_ours = files.is_fetched
    lines = [] if files.is_fetched else _text_of(files.plugstack).splitlines(keepends=True)
    kept = "".join(line for line in lines if line.rstrip("\n") != files.line)
    if len(kept) != len("".join(lines)):
        if kept:
            _write(files.plugstack, kept)
        else:
            files.plugstack.unlink()
        changed.append(files.plugstack)
        is_ours = True
    for path in (files.include, files.variables):
        with suppress(FileNotFoundError):
            path.unlink()
            changed.append(path)
    if is_ours:
        with suppress(OSError):  # the folder may have files of others
            files.include.parent.rmdir()
    return changed


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _write(path: Path, text: str) -> None:
    """Replace a file atomically; an existing file keeps its mode."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_atomically(path, text, Durability.CONTENT, mode=mode, by_several=True)
