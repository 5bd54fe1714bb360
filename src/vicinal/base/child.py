"""Commands that end with who started them."""

import shutil
from collections.abc import Sequence

from vicinal.base.errors import VicinalError


def dies_with_parent() -> Sequence[str]:
    """What to put before a command that must not outlive this process's present thread."""
    if shutil.which("setpriv") is None:
        raise VicinalError("the tool setpriv was not found", "install util-linux")
    return ["setpriv", "--pdeathsig", "KILL", "--"]
