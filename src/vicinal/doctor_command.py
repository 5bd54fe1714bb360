"""`vicinal doctor`: what this host can do for a virtual cluster.

It is here, above its parts: hosts know nothing of guests, of MPI libraries and of profiles, whose
checks are added to those of the host.
"""

import json
from typing import Annotated

import typer

# Not the function's docstring, of whose further paragraphs typer keeps the line breaks.
_HELP = (
    "Say what this host can do for a virtual cluster, and what to do about what it cannot.\n\n"
    "Each line is PASS, WARN (slower, not for everybody, or not known), FAIL (here, and of no use "
    "until the remedy is done) or SKIP (this host has no such thing). Nothing is changed. The exit "
    "status is 1 if something failed."
)


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="doctor", help=_HELP)(doctor)


def doctor(
    checks: Annotated[
        list[str] | None,
        typer.Argument(help="Only these checks; all without any.", metavar="CHECK"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    list_checks: Annotated[
        bool, typer.Option("--list", help="Show which checks there are, and run none.")
    ] = False,
    start_guest: Annotated[
        bool | None,
        typer.Option(
            "--start-guest/--no-start-guest",
            help="Start a guest to see whether KVM works, or do not, and say only what is known. "
            "By default one is started where its image's packages are here, once per boot of the "
            "host; --start-guest fetches them, some 60 MB.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Say what this host can do for a virtual cluster, and what to do about what it cannot."""
    # Loaded here: the rest of the command line does not wait for it.
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
