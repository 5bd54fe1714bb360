"""The directory of a host's journal, and the lock for one changing command at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock

STATE = Path("/var/lib/vicinal/tune")
"""A host has one journal for all users, so the directory is in no user's home."""


@contextmanager
def sole_command(state: Path) -> Iterator[None]:
    """Hold the lock of the host's journal; the directory is created if it is missing.

    The kernel drops the lock of a killed command. So a lock holder that finds an unfinished
    operation in the journal knows that no command works on it. Raises VicinalError if another
    command holds the lock, or the directory cannot be used.
    """
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        held = lock(state)
    except BlockingIOError:
        raise VicinalError(
            "another `vicinal tune` is changing this host",
            f"wait until it ends, or end it: `fuser {state}` shows its process",
        ) from None
    except OSError as error:
        raise VicinalError(
            f"the directory {state} cannot be used ({describe_os_error(error)})",
            "be root, or name a directory of yours with --state",
        ) from error
    try:
        yield
    finally:
        os.close(held)
