"""The check of `vicinal doctor` for the profile of thresholds of this user's jobs."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host
from vicinal.labs.tune.profile import profile_in_force, read_profile
from vicinal.mpi.thresholds import THRESHOLDS


def check_profile(host: Host) -> Iterator[Finding]:
    """Check which file the provider loads, whether it uses the file, and which variables
    override it.
    """
    del host  # a user's own file overrides the host's
    path = profile_in_force(os.environ)
    if path is None:
        named = "VICINAL_PROFILE" in os.environ
        why = "VICINAL_PROFILE is empty" if named else "there is no profile"
        yield skipped(f"{why}: jobs have the provider's default thresholds")
    else:
        yield _examined(path)
    before = [each.variable for each in THRESHOLDS if each.variable in os.environ]
    if before:
        yield warned(
            f"these variables are set, and override any profile: {', '.join(before)}",
            "unset the variables that you do not need",
            variables=before,
        )


def _examined(path: Path) -> Finding:
    try:
        _check_believed(path)
        thresholds = read_profile(path)
    except VicinalError as error:
        return warned(error.message, error.remedy, path=str(path))
    values = ", ".join(f"{key} {value}" for key, value in thresholds.items())
    return passed(f"{path}: {values or 'no thresholds'}", path=str(path), thresholds=thresholds)


def _check_believed(path: Path) -> None:
    """Raise VicinalError for a file that the provider does not use, by the rules of check_file in
    profile.c.
    """
    try:
        found = path.stat()
    except OSError:
        return  # read_profile() reports the error
    if not stat.S_ISREG(found.st_mode):
        raise VicinalError(
            f"{path} is not a regular file, and is not used",
            "remove it, or let VICINAL_PROFILE name another file",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise VicinalError(
            f"{path} belongs to user {found.st_uid}, and is not used",
            "make a copy that belongs to you",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise VicinalError(
            f"other users can write {path}, so it is not used", f"run `chmod go-w {path}`"
        )


PROFILE = Check(
    "profile",
    "profile",
    "Thresholds of this host that `vicinal tune` found: the file that jobs load",
    check_profile,
)
