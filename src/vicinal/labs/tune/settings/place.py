"""Where it is kept what was changed on a machine, and one command at a time that changes it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock

STATE = Path("/var/lib/vicinal/tune")
"""A machine has one journal, whoever changes it: so this is nobody's home."""


@contextmanager
def sole_command(state: Path) -> Iterator[None]:
    """Keep other commands from changing the machine; the directory is made if it is missing.

    The kernel drops the lock of a command that is killed: who gets it, and finds an operation in
    the journal that did not end, knows that nobody is at it. Raises VicinalError where another
    command is at work, or the directory cannot be used.
    """
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        held = lock(state)
    except BlockingIOError:
        raise VicinalError(
            "another `vicinal tune` is changing this machine",
            f"wait until it ends, or end it: `fuser {state}` names it",
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
