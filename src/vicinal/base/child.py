"""Child processes that end with their parent."""

import shutil
from collections.abc import Sequence

from vicinal.base.errors import VicinalError


def dies_with_parent() -> Sequence[str]:
    """Return the words to put before a command that must not outlive the calling thread.

    Raises VicinalError if the program setpriv is not installed.
    """
    if shutil.which("setpriv") is None:
        raise VicinalError("the tool setpriv was not found", "install util-linux")
    return ["setpriv", "--pdeathsig", "KILL", "--"]
