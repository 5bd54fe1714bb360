"""`vicinal region`: create, show, check and remove. vicinal.launch adds detach and attach."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vicinal.base.sizes import parse_size, show_size
from vicinal.region import checking, creation, geometry, inspection
from vicinal.region.filesystem import advice, filesystem_type
from vicinal.region.heap_size import default_heap
from vicinal.region.opening import socket_of

PATIENCE = 3.0
"""Seconds in which members in other virtual machines must show that they are alive."""


def region_file(text: str) -> Path:
    """Return the region that an argument names, as PATH or in the notation of VICINAL_REGION: a
    file's path, or socket:PATH."""
    if text.startswith(("pci:", "dax:")):
        raise typer.BadParameter(
            f"{text} is a device in a guest; on the host, name the file behind the device"
        )
    return Path(text.removeprefix("file:"))


def _file_only(text: str) -> Path:
    """Return the file that an argument names. A broker's region has no file."""
    path = region_file(text)
    if socket_of(path) is not None:
        raise typer.BadParameter(
            f"{text} is a broker's region: start the broker with `vicinal region serve`, and end "
            "it with SIGTERM"
        )
    return path


RegionPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        parser=region_file,
        help="The region: its file as PATH or file:PATH, or socket:PATH of its broker.",
    ),
]
RegionFile = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", parser=_file_only, help="The region's file, as PATH or file:PATH."
    ),
]

Members = Annotated[
    int, typer.Option(help="Member slots; each endpoint of each process takes one.")
]
SectionSize = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Bytes for the messages of each member, such as 960K or 4M."),
]
Label = Annotated[str, typer.Option(help="A name that `show` prints, such as the job's.")]

commands = typer.Typer(
    help="Create, show, check and remove shared regions; move members out of a region."
)


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="region")


@commands.command()
def create(
    path: RegionFile,
    members: Members = creation.DEFAULT_MEMBERS,
    section_size: SectionSize = "964K",
    heap: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Bytes for the application's memory of each member, beside its section; 0: none. "
            "Members reserve this memory when they use it; with --for-guests, --for-nvdimm or "
            "--existing the command reserves it now. Default on tmpfs: 64M, less with more than 64 "
            "members; for guests: what the file's length leaves over.",
        ),
    ] = None,
    label: Label = "",
    for_guests: Annotated[
        bool,
        typer.Option(
            "--for-guests", help="Make the file's length a power of two, as ivshmem requires."
        ),
    ] = False,
    for_nvdimm: Annotated[
        bool,
        typer.Option(
            "--for-nvdimm",
            help="Make the file a memory module: guests find the region as /dev/dax, mapped "
            "write-back.",
        ),
    ] = False,
    existing: Annotated[
        bool,
        typer.Option("--existing", help="Write into an existing file, such as QEMU's."),
    ] = False,
) -> None:
    """Create a region that only its owner can read, with its memory for messages reserved."""
    section_bytes = parse_size(section_size)
    region = creation.create(
        path,
        members=members,
        section_bytes=section_bytes,
        heap_bytes=_heap_bytes(
            heap,
            path,
            members,
            section_bytes,
            existing,
            for_guests=for_guests,
            for_nvdimm=for_nvdimm,
        ),
        label=label,
        for_guests=for_guests,
        for_nvdimm=for_nvdimm,
        existing=existing,
    )
    unwise = advice(region.path, filesystem_type(region.path.stat().st_dev))
    if unwise:
        typer.echo(f"vicinal: warning: {unwise}", err=True)
    heaps = (
        f", and heaps of {show_size(region.heap_bytes)} that take memory when they are used"
        if region.sparse_heaps
        else ""
    )
    typer.echo(f"created {region.name}: {members} members, {show_size(region.first_bytes)}{heaps}")


def _heap_bytes(
    text: str | None, path: Path, members: int, section_bytes: int, existing: bool, **fits: bool
) -> int:
    if text is not None:
        return parse_size(text)
    possible = geometry.section_fault(members, section_bytes) is None
    if existing or not possible:  # create() says what is wrong
        return 0
    return default_heap(members, section_bytes, directory=path.absolute().parent, **fits)


@commands.command()
def show(
    path: RegionPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a region's header, its members, and the messages of each pair."""
    state = inspection.inspect(path, patience=PATIENCE)
    if as_json:
        typer.echo(json.dumps(state.as_json(), indent=2))
        return
    console = Console(markup=False, highlight=False)
    console.print(_header_table(state))
    if state.members:
        console.print(_member_table(state))
    else:
        console.print("no member has joined yet")
    if state.connections:
        console.print(_connection_table(state))


@commands.command()
def check(path: RegionPath) -> None:
    """Check that a region is sound; exit with 1 if the region has a fault."""
    findings = checking.check(path, patience=PATIENCE)
    for finding in findings:
        typer.echo(f"vicinal: {'error' if finding.fault else 'warning'}: {finding}", err=True)
    if any(finding.fault for finding in findings):
        raise typer.Exit(1)
    typer.echo(f"{path} is sound")


@commands.command()
def remove(
    path: RegionFile,
    force: Annotated[
        bool, typer.Option("--force", help="Remove the region even while living members use it.")
    ] = False,
) -> None:
    """Remove a region."""
    creation.remove(path, force=force)
    typer.echo(f"removed {path}")


def _header_table(state: inspection.RegionState) -> Table:
    header = state.header
    rows = {
        "region": state.name,
        "id": header.id,
        "label": header.label or "-",
        "created": header.created.astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
        "format": f"version {header.version}",
        "members": f"{header.members} slots, {show_size(header.section_bytes)} each",
        "heap": _heap_text(header),
        "size": f"{show_size(header.region_bytes)}, {show_size(state.reserved_bytes)} reserved",
        **({"begins at": f"{show_size(state.offset)}, a memory module"} if state.offset else {}),
        "owner": f"{creation.user_name(state.owner)}, "
        + ("handed out by a broker" if state.brokered else f"mode {state.mode:04o}"),
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return table


def _heap_text(header: inspection.Header) -> str:
    if not header.heap_bytes:
        return "none"
    reserved = "reserved when used" if header.sparse_heaps else "reserved"
    return f"{show_size(header.heap_bytes)} of each, {reserved}"


def _member_table(state: inspection.RegionState) -> Table:
    table = Table(title="members", title_justify="left")
    for name in ("slot", "epoch", "rank", "pid", "endpoint", "arena used"):
        table.add_column(name, justify="right")
    table.add_column("host")
    table.add_column("state")
    several = any(member.home is not None for member in state.members)
    if several:
        table.add_column("first in")
    for member in state.members:
        home = member.home
        first = f"slot {home.slot} of {home.region}" if home is not None else "this region"
        table.add_row(
            str(member.slot),
            str(member.epoch),
            "-" if member.rank is None else str(member.rank),
            str(member.pid),
            str(member.endpoint),
            show_size(member.arena_used),
            Text(member.hostname),
            Text(member.condition, style="bold red" if member.alive is False else ""),
            *([Text(first, overflow="fold")] if several else []),
        )
    return table


def _connection_table(state: inspection.RegionState) -> Table:
    table = Table(title="connections", title_justify="left")
    table.add_column("from")
    table.add_column("to")
    for name in ("ring slots", "messages", "bytes"):
        table.add_column(name, justify="right")
    table.add_column("route")
    for connection in state.connections:
        table.add_row(
            Text(_who(state, connection.sender)),
            Text(_who(state, connection.receiver)),
            str(connection.slots),
            f"{connection.messages:,}",
            show_size(connection.bytes),
            connection.route.name.lower(),
        )
    return table


def _who(state: inspection.RegionState, slot: int) -> str:
    member = state.member(slot)
    rank = "" if member is None or member.rank is None else f" (rank {member.rank})"
    return f"slot {slot}{rank}"
