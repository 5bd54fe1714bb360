"""One request to the privileged helper, from standard input to the answer on standard output.

Both are JSON. A lock, which the kernel drops at the end of the process, excludes a second helper.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .changes import DMESG, Changes
from .requests import Fields, checked
from .system import Host, RefusedError

_LOCK_SECONDS, _REQUEST_BYTES = 30.0, 1 << 18
"""Another helper may be changing all VFs of a VM, each of which takes some time."""


def perform(host: Host, user: int, request: object) -> Fields:
    """Perform a request for a user, and return the answer. Raises RefusedError or OSError."""
    operation, fields = checked(request)
    with _locked(host.records):
        answer: Fields = getattr(Changes(host, user), operation)(**fields)
        return answer


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_SECONDS
    # Mode 0600, because another user who could open the file could hold the lock.
    with os.fdopen(os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    what = "another `vicinal vf` is changing VFs"
                    raise RefusedError(what, "try again after it") from None
                time.sleep(0.05)
        yield


def main() -> int:
    """Answer the request on standard input; the exit status is 1 if the answer is an error."""
    os.umask(0o022)
    user = int(os.environ.get("SUDO_UID", "0"))
    try:
        if os.geteuid() != 0:
            raise RefusedError("the helper was not run as root", "use sudo")
        answer = perform(Host(), user, json.loads(sys.stdin.read(_REQUEST_BYTES)))
    except RefusedError as error:
        answer = {"error": list(error.args)}
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        answer = {"error": [f"the privileged helper failed ({error})", DMESG]}
    sys.stdout.write(json.dumps(answer))
    return 1 if "error" in answer else 0
