"""Files of the VM that a context determines, and the user who owns some of them."""

import os
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.files import replaced


@dataclass(frozen=True)
class Account:
    """The user whom cloud-init has created, as owner of a key."""

    name: str
    uid: int
    gid: int


def put(file: Path, content: str | None, account: Account | None = None) -> bool:
    """Write a file, or remove it if `content` is None; returns whether it changed."""
    if content is None:
        existed = file.exists()
        file.unlink(missing_ok=True)
        return existed
    if account is None and file.exists() and file.read_text() == content:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644 if account is None else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with replaced(file) as part, os.fdopen(os.open(part, flags, mode), "w") as out:
        out.write(content)
        if account is not None:
            os.fchown(out.fileno(), account.uid, account.gid)
    return True
