"""`vicinal vf`: list, show, create, assign, release and remove SR-IOV VFs."""

import getpass
import json
import os
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vicinal.base.errors import VicinalError
from vicinal.host.vf.moderation import (
    SETTINGS,
    interface_of,
    read_moderation,
    set_moderation,
)
from vicinal.host.vf.operations import Vfs, vfio_node
from vicinal.host.vf.owners import assigned_to
from vicinal.host.vf.privileged.system import VFIO, word
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    PhysicalFunction,
    Port,
    VirtualFunction,
    find_card,
    find_vf,
    read_records,
)

Owner = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The owner, such as a cluster's name."),
]
Beneficiary = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The owner, such as a cluster's name; by default you."),
]
Card = Annotated[
    str, typer.Argument(metavar="CARD", help="PCI address, interface or RDMA device of a card.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

commands = typer.Typer(help="Create SR-IOV virtual functions (VFs), and assign them to clusters.")


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="vf")
    app.add_typer(commands, name="functions", hidden=True)  # the former name


@commands.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the cards that support virtual functions, and their VFs."""
    vfs = Vfs()
    cards = vfs.cards()
    if as_json:
        typer.echo(json.dumps({"cards": [asdict(card) for card in cards]}, indent=2))
        return
    console = Console(markup=False, highlight=False)
    if not cards:
        console.print("this host has no network card that supports virtual functions")
    for card in cards:
        console.print(_card_line(card), soft_wrap=True)
        if card.vfs:
            console.print(_table(card.vfs))
    there = {vf.address for card in cards for vf in card.vfs}
    for address, record in read_records(vfs.host)["vfs"].items():
        if address not in there:
            console.print(
                f"{address} is gone, and is still recorded for {record['owner']}: release it"
            )


@commands.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A VF, or a card: address or interface.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show one VF, or one card with its VFs."""
    cards = Vfs().cards()
    vf = find_vf(cards, name)
    card = find_card(cards, vf.physical if vf else name)
    if as_json:
        typer.echo(json.dumps(asdict(vf or card), indent=2))
        return
    console = Console(markup=False, highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for title, value in (_vf_rows(vf) if vf else _card_rows(card)).items():
        table.add_row(Text(title, style="bold"), Text(value or "-", overflow="fold"))
    console.print(table)


@commands.command()
def create(
    card: Card,
    count: Annotated[int, typer.Argument(help="The number of VFs.")],
    owner: Beneficiary = None,
) -> None:
    """Create virtual functions on a card. Needs root, or the helper."""
    made = Vfs().create(card, count, owner=owner or getpass.getuser())
    addresses = ", ".join(vf.address for vf in made.vfs)
    typer.echo(f"{made.address} has {count} virtual functions: {addresses}")


@commands.command()
def remove(
    card: Annotated[
        str | None,
        typer.Argument(metavar="CARD", help="The card; by default all cards of --owner."),
    ] = None,
    owner: Owner = None,
) -> None:
    """Remove all virtual functions of a card, or of an owner. Needs root, or the helper.

    With only --owner, the owner's VFs on all cards are released first.
    """
    if card is not None:
        count = Vfs().remove(card, owner=owner)
        typer.echo(f"removed {count} virtual functions of {card}")
    elif owner is not None:
        vfs = Vfs()
        made = [card for card in vfs.cards() if card.owner == owner]
        if not made and not assigned_to(vfs, owner):
            typer.echo(f"{owner} has no VFs, created or assigned")
            return
        _warn(vfs.clear(owner))
        typer.echo(f"removed all of {owner}")
    else:
        raise typer.BadParameter("name a card, or an owner with --owner")


@commands.command()
def assign(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A VF, or a card whose first free VF is used."),
    ],
    owner: Beneficiary = None,
    vfio: Annotated[
        bool,
        typer.Option("--vfio", help="Bind the VF to vfio-pci, for a virtual machine."),
    ] = False,
    mac: Annotated[str | None, typer.Option(help="Ethernet: hardware address.")] = None,
    vlan: Annotated[int | None, typer.Option(help="Ethernet: VLAN; 0 for none.")] = None,
    qos: Annotated[int | None, typer.Option(help="Ethernet: priority in the VLAN.")] = None,
    spoof_check: Annotated[
        bool | None,
        typer.Option(help="Ethernet: drop frames with another source address."),
    ] = None,
    trust: Annotated[
        bool | None,
        typer.Option(help="Ethernet: allow promiscuous mode and changes of the address."),
    ] = None,
    min_rate: Annotated[
        int | None, typer.Option(help="Ethernet: guaranteed send rate in Mbit/s.")
    ] = None,
    max_rate: Annotated[
        int | None, typer.Option(help="Ethernet: greatest send rate in Mbit/s; 0 for no limit.")
    ] = None,
    link_state: Annotated[
        str | None,
        typer.Option(
            "--link-state", "--policy", help="auto (as the card's port), enable or disable."
        ),
    ] = None,
    node_guid: Annotated[str | None, typer.Option(help="InfiniBand: GUID of the node.")] = None,
    port_guid: Annotated[str | None, typer.Option(help="InfiniBand: GUID of the port.")] = None,
    pkey: Annotated[
        str | None, typer.Option(help="InfiniBand: partition key, such as 0x8001 (mlx4).")
    ] = None,
    port: Annotated[int | None, typer.Option(help="InfiniBand: number of the port (mlx4).")] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="InfiniBand: longest wait for an ACTIVE port; 0 for no wait."
        ),
    ] = 30.0,
) -> None:
    """Assign a VF to an owner, and configure the VF. Needs root, or the helper."""
    settings = Settings(
        mac=mac,
        vlan=vlan,
        qos=qos,
        spoof_check=spoof_check,
        trust=trust,
        min_rate=min_rate,
        max_rate=max_rate,
        link_state=link_state,
        node_guid=node_guid,
        port_guid=port_guid,
        pkey=None if pkey is None else _pkey(pkey),
        port=port,
    )
    vfs = Vfs()
    whose = owner or getpass.getuser()
    given = vfs.assign(name, owner=whose, settings=settings, vfio=vfio, wait=wait)
    where = f", {vfio_node(given, vfs.host)}" if given.driver == VFIO else ""
    typer.echo(f"{given.address} is assigned to {whose}: {given.driver or 'no driver'}{where}")


@commands.command()
def release(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="VFs; by default all of --owner."),
    ] = None,
    owner: Owner = None,
) -> None:
    """Release VFs, and restore their former settings. Needs root, or the helper."""
    if not names and owner is None:
        raise typer.BadParameter("name VFs, or their owner with --owner")
    vfs = Vfs()
    if not names and owner is not None and not assigned_to(vfs, owner):
        typer.echo(f"nothing was assigned to {owner}")
        return
    _warn(vfs.release(names or [], owner=owner))
    typer.echo(f"released {' '.join(names) if names else 'all of ' + str(owner)}")


@commands.command()
def moderation(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A card or VF: address or interface.")
    ],
    rx_usecs: Annotated[
        int | None,
        typer.Option(
            min=0, help="Longest time from a received message to the interrupt, in microseconds."
        ),
    ] = None,
    rx_frames: Annotated[
        int | None,
        typer.Option(min=0, help="Greatest number of received messages before the interrupt."),
    ] = None,
    tx_usecs: Annotated[
        int | None, typer.Option(min=0, help="Like --rx-usecs, for sent messages.")
    ] = None,
    tx_frames: Annotated[
        int | None, typer.Option(min=0, help="Like --rx-frames, for sent messages.")
    ] = None,
    adaptive_rx: Annotated[
        bool | None, typer.Option(help="Let the driver choose by the receive rate.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a card's interrupt moderation; with options, set it first. Setting needs root."""
    given = {
        "adaptive-rx": None if adaptive_rx is None else word(adaptive_rx),
        "rx-usecs": rx_usecs,
        "rx-frames": rx_frames,
        "tx-usecs": tx_usecs,
        "tx-frames": tx_frames,
    }
    wanted = {setting: str(value) for setting, value in given.items() if value is not None}
    if wanted and os.geteuid() != 0:
        raise VicinalError("only root can set interrupt moderation", "run the command as root")
    vfs = Vfs()
    interface = interface_of(vfs, name)
    if wanted:
        now = set_moderation(vfs.host, interface, wanted)
    else:
        now = read_moderation(vfs.host, interface)
    if as_json:
        typer.echo(json.dumps({"interface": interface, "moderation": now}, indent=2))
        return
    for setting in SETTINGS:
        typer.echo(f"{setting}: {now.get(setting, 'the driver has none')}")


def _warn(notes: list[str]) -> None:
    for note in notes:
        typer.echo(f"vicinal: warning: {note}", err=True)


def _pkey(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = 0
    if not value & 0x7FFF > 0 or value > 0xFFFF:
        raise VicinalError(f"{text} is no partition key", "give one from 0x0001 to 0xffff")
    return value


def _card_line(card: PhysicalFunction) -> Text:
    names = ", ".join(sorted(card.names - {card.address})) or "no interface here"
    line = f"{card.address} ({names}): {card.kind}, driver {card.driver or 'none'},"
    line += f" {len(card.vfs)} of at most {card.most} VFs"
    return Text(line + (f", made for {card.owner}" if card.owner else ""), style="bold")


def _table(vfs: tuple[VirtualFunction, ...]) -> Table:
    table = Table()
    table.add_column("", justify="right")
    for title in ("address", "driver", "IOMMU group", "interface", "RDMA port", "assigned to"):
        table.add_column(title)
    table.add_column("in use", overflow="fold")
    for vf in vfs:
        table.add_row(
            str(vf.number),
            Text(vf.address),
            Text(vf.driver or "-"),
            vf.group or "-",
            Text(", ".join(vf.interfaces) or "-"),
            Text("\n".join(f"{_port_name(port)} {port.state}" for port in vf.ports) or "-"),
            Text(vf.owner or "-"),
            Text(_use(vf) or "-"),
        )
    return table


def _vf_rows(vf: VirtualFunction) -> dict[str, str]:
    rows: dict[str, Any] = {
        "address": vf.address,
        "VF": f"{vf.number} of {vf.physical}",
        "driver": vf.driver,
        "IOMMU group": " with ".join([vf.group, *vf.group_others]),
        "interface": ", ".join(vf.interfaces),
    }
    for port in vf.ports:
        rows[f"port {_port_name(port)}"] = _port(port)
    rows["settings"] = ", ".join(f"{name} {text}" for name, text in vf.settings.items())
    return {**rows, "assigned to": vf.owner, "in use": _use(vf)}


def _card_rows(card: PhysicalFunction) -> dict[str, str]:
    rows = {
        "address": card.address,
        "kind": card.kind,
        "driver": card.driver,
        "interface": ", ".join(card.interfaces),
        "NUMA node": "-" if card.numa_node < 0 else str(card.numa_node),
    }
    for port in card.ports:
        rows[f"port {_port_name(port)}"] = _port(port)
    rows["VFs"] = f"{len(card.vfs)} of at most {card.most}"
    rows["made for"] = card.owner
    return {**rows, "are": " ".join(vf.address for vf in card.vfs)}


def _port_name(port: Port) -> str:
    return f"{port.device}/{port.number}"


def _port(port: Port) -> str:
    text = f"{port.link_layer}, {port.state}, link {port.physical_state}, GUID {port.guid or '-'}"
    manager = port.subnet_manager
    return text + (f", subnet manager at LID {manager}" if manager else ", no subnet manager")


def _use(vf: VirtualFunction) -> str:
    programs = f": {', '.join(vf.programs)}" if vf.programs else ""
    return vf.use + programs
