"""`vicinal region detach` and `attach`: move members of a running job to the network, and back."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.launch.paths import newest_job
from vicinal.region.commands import commands, region_file

RunningRegion = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH",
        parser=region_file,
        help="The region: a file as PATH, or socket:PATH; by default all regions of the newest job "
        "of `vicinal run`.",
        show_default=False,
    ),
]
MemberSlots = Annotated[
    list[int] | None,
    typer.Option(
        "--member", metavar="SLOT", help="Only this member; can be repeated. Default: all members."
    ),
]
Leave = Annotated[
    bool,
    typer.Option(
        "--leave",
        help="Also leave the region, so that its device can be removed from the members' VM. "
        "The members look for another region about once a second.",
    ),
]
Seconds = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the members.")
]


def register(app: typer.Typer) -> None:
    """Add both commands to `vicinal region`, which `app` already contains."""
    del app
    commands.command("detach")(_detach)
    commands.command("attach")(_attach)


def _detach(
    path: RunningRegion = None,
    member: MemberSlots = None,
    leave: Leave = False,
    timeout: Seconds = 10.0,
) -> None:
    """Have members be reached over the network while their job runs; no message is lost.

    Each member that exchanges messages with a detached member switches at the next message, and the
    command counts its connections. Exits with 1 if a member cannot switch, or does not switch in
    time.
    """
    for file in _regions(path, member):
        if leave:
            _tell(file, region.leave(file, member or (), timeout=timeout), "have left the region")
        else:
            outcome = region.detach(file, member or (), timeout=timeout)
            _tell(file, outcome, "connections go over the network")


def _attach(
    path: RunningRegion = None, member: MemberSlots = None, timeout: Seconds = 10.0
) -> None:
    """Have detached members be reached through the region again."""
    for file in _regions(path, member):
        outcome = region.attach(file, member or (), timeout=timeout)
        _tell(file, outcome, "connections go through the region")


def _regions(path: Path | None, members: list[int] | None) -> list[Path]:
    if path is not None:
        return [path]
    try:
        regions = newest_job()
    except VicinalError as error:
        raise VicinalError(
            "no job of yours runs through a region now",
            "start one with `vicinal run`, or name a region's file",
        ) from error
    if members and len(regions) > 1:
        raise VicinalError(
            f"the job has {len(regions)} regions, and each region has a slot {members[0]}",
            f"name one of them, such as {regions[0]}",
        )
    return regions


def _tell(path: Path, outcome: region.Outcome, what: str) -> None:
    for trouble in outcome.troubles:
        typer.echo(f"vicinal: error: {trouble}", err=True)
    if outcome.troubles:
        raise typer.Exit(1)
    members = f"{len(outcome.members)} member{'' if len(outcome.members) == 1 else 's'}"
    typer.echo(f"{members} of {path}: {outcome.moved} {what}")
