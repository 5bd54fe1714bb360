"""`vicinal doctor`: what this host can do for a virtual cluster.

The module is here, above the parts of the package, because `host` knows nothing about guests, MPI
libraries and profiles. This module adds their checks to the host's.
"""

import json
from typing import Annotated

import typer

# Not the function's docstring, because typer keeps the line breaks of a docstring's later
# paragraphs.
_HELP = (
    "Check what this host can do for a virtual cluster, and print a remedy for each fault.\n\n"
    "Each line is PASS, WARN (slower, not for every user, or unknown), FAIL (present, but unusable "
    "until the remedy is applied) or SKIP (this host does not have it). The command changes "
    "nothing. The exit status is 1 if a check failed."
)


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="doctor", help=_HELP)(doctor)


def doctor(
    checks: Annotated[
        list[str] | None,
        typer.Argument(help="Run only these checks; by default all.", metavar="CHECK"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    list_checks: Annotated[
        bool, typer.Option("--list", help="List the checks, and run none.")
    ] = False,
    start_guest: Annotated[
        bool | None,
        typer.Option(
            "--start-guest/--no-start-guest",
            help="Start a guest to check that KVM works, or report earlier results only. By "
            "default a guest starts once per boot of the host, if the packages of its image are "
            "here. "
            "--start-guest fetches the packages, some 60 MB.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Check what this host can do for a virtual cluster, and print a remedy for each fault."""
    # Imported here, so that other commands do not wait for these imports.
    from rich.console import Console

    from vicinal.cluster.nodes.container.check import NODES
    from vicinal.cluster.vm.qemu.check import guest_check
    from vicinal.host.checks import CHECKS
    from vicinal.host.doctor import (
        choose_checks,
        count,
        document,
        examine,
        show_checks,
        show_report,
    )
    from vicinal.host.finding import Status
    from vicinal.host.system import Host
    from vicinal.labs.tune.profile_check import PROFILE
    from vicinal.mpi.library_checks import LIBRARY_CHECKS

    first, *others = CHECKS
    console = Console(highlight=False)
    every = (first, guest_check(start_guest, _note), *others, NODES, *LIBRARY_CHECKS, PROFILE)
    chosen = choose_checks(every, checks or [])
    if list_checks:
        show_checks(chosen, console)
        return 0
    found = examine(Host(), chosen)
    if as_json:
        examined = list(found)
        typer.echo(json.dumps(document(examined), indent=2))
    else:
        examined = show_report(found, console)
    return 1 if count(examined)[Status.FAIL] else 0


def _note(text: str) -> None:
    typer.echo(f"vicinal: {text}", err=True)
