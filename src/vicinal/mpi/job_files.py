"""Input files of a job: put into a directory of each node by the ranks themselves.

Nodes share no directory that could be written to, so the files go with the ranks' command line.
Over hosts (vicinal/launch/host_job.py) an agent on each has them before the ranks start.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence

from vicinal.base.errors import VicinalError

MOST_BYTES = 96 << 10
"""Of all files of a job: the kernel takes arguments of up to 128 KiB each."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_names(files: Iterable[str]) -> None:
    """Raise VicinalError for names that a job's files cannot have."""
    for name in files:
        if not _NAME.fullmatch(name):
            raise VicinalError(f"{name!r} is no name of a job's file", "use letters and digits")


def in_directory(directory: str, program: Sequence[str]) -> list[str]:
    """The program, run in a directory that is there."""
    return ["/bin/sh", "-c", f'cd {directory} && exec "$@"', "sh", *program]


def with_files(files: Mapping[str, str], directory: str, program: Sequence[str]) -> list[str]:
    """The program, run in `directory`, which has these files: text by name.

    Raises VicinalError for names that are none, and for more text than there is room for.
    """
    if not files:
        return list(program)
    check_names(files)
    script = f"mkdir -p {directory} && cd {directory}"
    for name, text in files.items():
        encoded = base64.b64encode(text.encode()).decode()
        # Under a name of its own first: the ranks of a node all write the same.
        script += f" && printf %s {encoded} | base64 -d >{name}.$$ && mv {name}.$$ {name}"
    if len(script) > MOST_BYTES:
        raise VicinalError(
            f"the files of a job have {len(script) - MOST_BYTES} bytes too many for it",
            "let the program read them from a directory that all nodes see",
        )
    return ["/bin/sh", "-c", f'{script} && exec "$@"', "sh", *program]
