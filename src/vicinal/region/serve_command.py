"""`vicinal region serve`: hands out regions over Unix sockets, also to processes of other users."""

from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size, show_size
from vicinal.region import creation, geometry
from vicinal.region.commands import Label, Members, SectionSize, commands
from vicinal.region.heap_size import default_heap
from vicinal.region.serving import REGIONS_MAX, Rules, Serving, closed_directory

_MOST_SECONDS = 1 << 31


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal region`, which `app` already contains."""
    del app
    commands.command("serve")(_serve)


def _serve(
    socket: Annotated[
        list[Path],
        typer.Option(
            metavar="PATH",
            help="The Unix socket at which members get the region (VICINAL_REGION=socket:PATH). "
            "Can be repeated: each socket has a region of its own.",
        ),
    ],
    members: Members = creation.DEFAULT_MEMBERS,
    section_size: SectionSize = "964K",
    heap: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Bytes for the application's memory of each member, beside its section; 0: none. "
            "Members reserve this memory when they use it. Default: 64M, less with more than 64 "
            "members.",
        ),
    ] = None,
    label: Label = "",
    allow_uid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER|FIRST-LAST",
            help="Also hand the region to processes of this user, or of these numbers; can be "
            "repeated. Default: only to the broker's own user.",
        ),
    ] = None,
    allow_gid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP|FIRST-LAST",
            help="Also hand the region to processes that have this group; can be repeated.",
        ),
    ] = None,
    allow_anyone: Annotated[
        bool,
        typer.Option(
            "--allow-anyone",
            help="Hand the region to every process that reaches the socket, such as those of "
            "containers into which its directory is mounted.",
        ),
    ] = False,
    until_idle: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=_MOST_SECONDS,
            help="End a region this long after its last member left. Default: end at SIGTERM.",
        ),
    ] = None,
) -> None:
    """Hand out a region whose memory nobody can truncate, until SIGTERM or --until-idle.

    The memory belongs to no file, and its members may be processes of several users, who can read
    and forge each other's messages. The command goes on in the foreground. It removes its socket
    when it ends.
    """
    if len(socket) > REGIONS_MAX:
        raise VicinalError(
            f"{len(socket)} sockets are more than {REGIONS_MAX}", "start several brokers"
        )
    rules = Rules.parse(allow_uid or (), allow_gid or (), anyone=allow_anyone)
    section_bytes = parse_size(section_size)
    heap_bytes = _heap_bytes(heap, members, section_bytes)
    serving = Serving(rules, members=members, idle_seconds=until_idle or 0)
    try:
        for path in socket:
            region = serving.add(
                path, section_bytes=section_bytes, heap_bytes=heap_bytes, label=label
            )
            closed = None if rules.only_own else closed_directory(region.path)
            if closed is not None:
                typer.echo(
                    f"vicinal: warning: other users cannot pass {closed} to {region.path}: "
                    f"run `chmod o+x {closed}`, or mount the socket's directory for them",
                    err=True,
                )
            heaps = (
                f", and heaps of {show_size(region.heap_bytes)} that take memory when they are used"
                if region.heap_bytes
                else ""
            )
            typer.echo(
                f"serving {region.name} to {rules}: {members} members, "
                f"{show_size(region.first_bytes)}{heaps}"
            )
        serving.become_broker()
    finally:  # only if this process has not become the broker
        serving.close()


def _heap_bytes(text: str | None, members: int, section_bytes: int) -> int:
    if text is not None:
        return parse_size(text)
    if geometry.section_fault(members, section_bytes) is not None:
        return 0  # add() says what is wrong
    return default_heap(members, section_bytes, in_memory=True)
