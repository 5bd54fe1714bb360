"""Files that are whole or not there."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, write_atomically

_FULL = {errno.ENOSPC, errno.EDQUOT}


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file aside, wait until it is on the disk, and only then give it its name.

    Raises VicinalError where that fails, on a full disk say; nothing is left of it then, as when it
    is interrupted.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, Durability.NAME)
    except OSError as error:
        raise VicinalError(
            f"{path} cannot be written ({describe_os_error(error)}); what was kept before it "
            "is whole",
            "make room there and go on with --resume"
            if error.errno in _FULL
            else "see that this user may write there, and go on with --resume",
        ) from error


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """As write_whole(), of JSON for people."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text.encode())
