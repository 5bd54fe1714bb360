"""The devices and knobs that `vicinal tune show` finds, for people and as data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.catalogue import devices
from vicinal.labs.tune.knobs.coalescing import PARTS
from vicinal.labs.tune.knobs.host import HostKnob, TunedHost
from vicinal.labs.tune.knobs.variables import VariableKnob
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.capability import Ability, Finding, try_knob
from vicinal.labs.tune.settings.journal import Operation

_CAP_NET_ADMIN = 12
_STYLES = {
    Ability.SETTABLE: "green",
    Ability.IGNORED: "bold red",
    Ability.REFUSED: "yellow",
    Ability.FORBIDDEN: "yellow",
    Ability.READABLE: "dim",
    Ability.UNTRIED: "dim",
}


@dataclass(frozen=True)
class Row:
    """One knob in the output."""

    knob: str
    value: Value | None
    """None if the value cannot be read."""
    unit: str
    values: tuple[Value, ...]
    """The values worth trying; after a probe, the values that the driver takes."""
    reaches: str
    ability: Ability
    why: str


@dataclass(frozen=True)
class Shown:
    """One device in the output."""

    name: str
    knobs: tuple[Row, ...]
    lacks: tuple[str, ...]
    missing: tuple[str, ...]


def look(
    host: TunedHost, names: Sequence[str], forbidden: Mapping[str, str], applier: Applier | None
) -> Iterator[Shown]:
    """The devices and their knobs; with an applier, tries which knobs can be set.

    Raises VicinalError for an unknown device, and for a knob that cannot be restored.
    """
    for device in devices(host, names):
        rows = tuple(_row(host, knob, forbidden, applier) for knob in device.knobs)
        yield Shown(device.name, rows, device.lacks, device.missing)


def _row(
    host: TunedHost, knob: HostKnob, forbidden: Mapping[str, str], applier: Applier | None
) -> Row:
    value: Value | None = None
    try:
        value, values = knob.read(), tuple(knob.values)
    except VicinalError as error:
        return Row(knob.name, None, "", (), knob.reaches, Ability.REFUSED, error.message)
    if knob.interface in forbidden:
        found = Finding(Ability.FORBIDDEN, forbidden[knob.interface])
    elif not host.system.capabilities >> _CAP_NET_ADMIN & 1:
        found = Finding(Ability.READABLE, "only root may set it")
    elif applier is None:
        found = Finding(Ability.UNTRIED, "--probe tries it")
    else:
        found = try_knob(applier, knob)
    return Row(
        knob.name,
        value,
        knob.unit,
        found.taken or values,
        knob.reaches,
        found.ability,
        found.why,
    )


def document(
    shown: Sequence[Shown], variables: Sequence[VariableKnob], changed: Sequence[Operation]
) -> dict[str, Any]:
    """The output as data for JSON."""
    return {
        "devices": [asdict(each) for each in shown],
        "variables": [
            {
                "knob": each.name,
                "value": each.read(),
                "unit": each.unit,
                "values": list(each.values),
                "reaches": each.reaches,
            }
            for each in variables
        ],
        "changed": [
            {
                "knob": change.knob,
                "before": change.before,
                "value": change.value,
                "kind": operation.kind,
            }
            for operation in changed
            for change in operation.changes.values()
        ],
    }


def show_device(shown: Shown, console: Console) -> None:
    """Show one device: its knobs, and the parts that it lacks."""
    console.print(Text(shown.name, style="bold"))
    if shown.knobs:
        table = _table("knob", "value", "can be set", "why not, or what it affects")
        for row in shown.knobs:
            table.add_row(
                row.knob.partition("/")[2],
                _with_unit(row.value, row.unit),
                Text(row.ability, style=_STYLES[row.ability]),
                row.why if row.why and row.ability is not Ability.UNTRIED else row.reaches,
            )
        console.print(Padding(table, (0, 0, 0, 2)))
    lacks = [*shown.lacks]
    if shown.missing:
        lacks.append(f"no other of the {len(PARTS)} parts of interrupt moderation")
    for each in lacks:
        console.print(Padding(Text(each, style="dim", overflow="fold"), (0, 0, 0, 2)))


def show_variables(variables: Sequence[VariableKnob], console: Console) -> None:
    """Show the variables of jobs."""
    console.print(Text("variables of a job", style="bold"))
    table = _table("variable", "value", "what it affects")
    for each in variables:
        table.add_row(each.name, str(each.read()), each.reaches)
    console.print(Padding(table, (0, 0, 0, 2)))


def show_changed(changed: Sequence[Operation], console: Console) -> None:
    """Show the values that are set and not restored."""
    lines = [
        Text(f"{change.knob} was {change.before} before it was set to {change.value}")
        for operation in changed
        for change in operation.changes.values()
    ]
    if lines:
        console.print(Text("set by vicinal; `vicinal tune restore` restores it", style="bold"))
        console.print(Padding(Group(*lines), (0, 0, 0, 2)))


def _with_unit(value: Value | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value} {unit}" if unit and isinstance(value, int) else str(value)


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in titles[:-1]:
        table.add_column(title, no_wrap=True)
    table.add_column(titles[-1], overflow="fold", ratio=1)
    return table
