"""Files that are whole or not there."""

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.labs.study.result.layout import PART

_FULL = {errno.ENOSPC, errno.EDQUOT}


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file aside, wait until it is on the disk, and only then give it its name.

    Raises VicinalError where that fails, on a full disk say; nothing is left of it then, as when it
    is interrupted. What a kill leaves behind has a name that ends in PART.
    """
    aside = path.with_name(path.name + PART)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _keep_name(path.parent)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise VicinalError(
                f"{path} cannot be written ({describe_os_error(error)}); what was kept before it "
                "is whole",
                "make room there and go on with --resume"
                if error.errno in _FULL
                else "see that this user may write there, and go on with --resume",
            ) from error
        raise


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """As write_whole(), of JSON for people."""
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, text.encode())


def _keep_name(directory: Path) -> None:
    """Wait until the directory, which has the file's new name, is on the disk too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
