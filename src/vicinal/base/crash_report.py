"""Reports about faults of Vicinal itself: one line for the user, and a file with the details.

A traceback does not help a user, but developers need one to fix the fault. This module is loaded
only after a fault has occurred.
"""

import os
import platform
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import vicinal
from vicinal.base.directories import state_directory
from vicinal.base.errors import describe_os_error

_MOST_REPORTS = 50
"""Older reports are removed, so that a script that calls a command in a loop does not fill the
disk."""

_MOST_LETTERS = 1000
"""Longest part of one argument that a report shows."""

_SECRET = r"[\w-]*(?:pass(?:word|wd|phrase)?|secret|token|credential|api[-_]?key)[\w-]*"
_VALUE = re.compile(rf"\b({_SECRET}\s*[=:]\s*)(\S+)", re.IGNORECASE)
_LOGIN = re.compile(r"(\w://[^\s/:@]*:)[^\s/@]+@")
_OPTION = re.compile(rf"--?{_SECRET}", re.IGNORECASE)
_HIDDEN = "***"


def report_crash(error: Exception, words: Sequence[str], *, host: str = "") -> str:
    """Write the details of a fault into a file, and return the line for the user.

    `words` are the command's arguments. `host` names this host if the user is on another host. If
    no file can be written, the line says why.
    """
    what = f"Vicinal has a bug ({_summary(error)})"
    try:
        file = _write(_details(error, words))
    except OSError as failure:
        why = describe_os_error(failure)
        return f"{what}, and a file with the details could not be written ({why}): report this line"
    where = f"the file {file}" + (f" on {host}" if host else "")
    return f"{what}: report the bug, and attach {where}, which has the details"


def without_secrets(text: str) -> str:
    """Replace anything in a text that looks like a password or a token by `***`."""
    return _LOGIN.sub(rf"\1{_HIDDEN}@", _VALUE.sub(rf"\1{_HIDDEN}", text))


def _summary(error: Exception) -> str:
    """The error, and the last line of Vicinal's own code that raised or passed it."""
    said = without_secrets(traceback.format_exception_only(error)[-1].strip())
    package = Path(vicinal.__file__).parent
    ours = [
        f" in {Path(frame.filename).relative_to(package.parent)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    return said[:200] + (ours[-1] if ours else "")


def _details(error: Exception, words: Sequence[str]) -> str:
    trace = "".join(traceback.format_exception(error))
    return (
        f"time: {time.strftime('%Y-%m-%d %H:%M:%S %z')}\n"
        f"vicinal: {vicinal.__version__}\n"
        f"python: {platform.python_version()} ({sys.executable})\n"
        f"system: {platform.platform()}\n"
        f"arguments: {_arguments(words)}\n\n"
        f"{without_secrets(trace)}"
    )


def _arguments(words: Sequence[str]) -> list[str]:
    """The arguments in Python's notation, without secrets."""
    shown, follows = [], False
    for word in words:
        shown.append(_HIDDEN if follows else without_secrets(word[:_MOST_LETTERS]))
        follows = _OPTION.fullmatch(word) is not None
    return shown


def _write(text: str) -> Path:
    """Write a new file that only this user can read: in the state directory, else in the directory
    for temporary files."""
    name = f"crash-{time.strftime('%Y-%m-%d-%H%M%S')}-"
    try:
        directory = state_directory() / "crashes"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(directory.glob("crash-*.txt"))[: 1 - _MOST_REPORTS]:
            old.unlink(missing_ok=True)
        descriptor, path = tempfile.mkstemp(".txt", name, directory)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        descriptor, path = tempfile.mkstemp(".txt", f"vicinal-{name}")
    with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
        file.write(text)
    return Path(path)
