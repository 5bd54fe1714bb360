"""Reading what a cluster's file adds to the image of its virtual machines."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.yaml import line_of
from vicinal.cluster.file.model import BackEnd, ImageAdditions

_MOUNTED_ON = ("/dev", "/proc", "/run", "/sys")
"""What is below is hidden when a machine has booted."""
_OURS = ("/init", "/etc/vicinal")


def read_additions(
    path: Path, group: Mapping[str, Any], values: Mapping[str, Any], backend: BackEnd
) -> ImageAdditions:
    """What a group's machines have: its own, or else what the file has for all.

    Raises VicinalError for places where nothing can be put.
    """
    given = group.get("image", values.get("image", {}))
    if backend is not BackEnd.VM:
        return ImageAdditions()
    files: Mapping[str, str] = given.get("files", {})
    found: dict[str, str] = {}
    for source, target in files.items():
        place = f"{line_of(path, files, source)}: image.files puts {source}"
        where = str(PurePosixPath(target))
        if ".." in PurePosixPath(target).parts or where == "/":
            raise VicinalError(f"{place} at {target}", "name its whole path in the machines")
        for reserved in (*_MOUNTED_ON, *_OURS):
            if PurePosixPath(where).is_relative_to(reserved):
                why = "is mounted on" if reserved in _MOUNTED_ON else "is Vicinal's own"
                raise VicinalError(
                    f"{place} at {target}, and {reserved} {why}",
                    "name another place, and let first_boot or each_boot do the rest",
                )
        if where in found:
            raise VicinalError(f"{place} at {target}, as {found[where]}", "leave out one of them")
        found[where] = source
    return ImageAdditions(
        packages=tuple(dict.fromkeys(given.get("packages", ()))),
        # A relative one begins at the file's directory.
        files=tuple(
            (os.path.normpath((path.parent / source).absolute()), where)
            for where, source in found.items()
        ),
    )
