"""Options that several commands of `vicinal tune` have, and the commands' common use of the
journal.
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.state_directory import sole_command

JOURNAL = "journal"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")]
OwnConnection = Annotated[
    bool,
    typer.Option(
        "--own-connection",
        help="Also change the interfaces that carry this session and the default route.",
    ),
]
State = Annotated[
    Path,
    typer.Option(metavar="DIRECTORY", help="Directory of the journal of former values."),
]


def recover_what_was_killed(applier: Applier, state: Path) -> None:
    """Restore values that a killed command left, if this user may and no other command is
    running.
    """
    try:
        if not (state / JOURNAL).exists() or all(each.kept for each in applier.operations()):
            return
    except PermissionError:
        return
    with suppress(VicinalError), sole_command(state):
        say(applier.recover())


def say(lines: list[str]) -> None:
    """Write notes to standard error, beside the command's output."""
    for line in lines:
        typer.echo(f"vicinal: {line}", err=True)
