"""Writes files that are either complete or absent."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, write_atomically

_FULL = {errno.ENOSPC, errno.EDQUOT}


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file under another name, wait until it is on the disk, and then rename it.

    Raises VicinalError on failure, for example on a full disk. Nothing is left then, nor after an
    interruption.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, Durability.NAME)
    except OSError as error:
        raise VicinalError(
            f"{path} cannot be written ({describe_os_error(error)}); all that was stored before "
            "is complete",
            "free space there and resume with --resume"
            if error.errno in _FULL
            else "check that this user may write there, and resume with --resume",
        ) from error


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON for people as write_whole() does."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text.encode())
