"""`vicinal tune`: shows what can be set on this host, sets it, and restores it."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.explain_command import explain
from vicinal.labs.tune.export_command import export
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.variables import as_shell, variable_knobs
from vicinal.labs.tune.options import (
    JOURNAL,
    AsJson,
    DryRun,
    OwnConnection,
    State,
    recover_what_was_killed,
    say,
)
from vicinal.labs.tune.run_command import run
from vicinal.labs.tune.settings.applier import Applier, describe
from vicinal.labs.tune.settings.boot_unit import disable_unit, read_setting, remove_unit, write_unit
from vicinal.labs.tune.settings.journal import Kind
from vicinal.labs.tune.settings.own_connection import own_connection
from vicinal.labs.tune.settings.state_directory import STATE, sole_command
from vicinal.labs.tune.settings.values import parse_setting

Root = Annotated[
    Path,
    typer.Option(metavar="DIRECTORY", help="Root directory of the system that boots the unit."),
]

commands = typer.Typer(help="Show what can be set for messages, set it, and restore it.")
commands.command()(export)
commands.command()(run)
commands.command()(explain)


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.add_typer(commands, name="tune")


@commands.command()
def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="DEVICE", help="Network interfaces and RDMA devices. Default: all."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Try what can be set: set each value, read it back, and restore the former value.",
        ),
    ] = False,
    own: OwnConnection = False,
    as_json: AsJson = False,
    state: State = STATE,
) -> None:
    """Show every knob, its value, what it affects, and whether it can be set here.

    Without --probe nothing is changed, except that values left by a killed command are restored.
    """
    # Loaded here: other commands do not need it.
    from rich.console import Console

    from vicinal.labs.tune.showing import document, look, show_changed, show_device, show_variables

    host = TunedHost()
    forbidden = {} if own else own_connection(host)
    applier = Applier(host, state / JOURNAL, forbidden)
    if probe:
        with sole_command(state):
            say(applier.recover())
            shown = list(look(host, names or [], forbidden, applier))
    else:
        recover_what_was_killed(applier, state)
        shown = list(look(host, names or [], forbidden, None))
    variables = [] if names else variable_knobs(dict(os.environ))
    changed = []
    with suppress(PermissionError):  # only root may read the journal
        changed = applier.operations()
    if as_json:
        typer.echo(json.dumps(document(shown, variables, changed), indent=2))
        return
    console = Console(markup=False, highlight=False)
    for each in shown:
        show_device(each, console)
    if variables:
        show_variables(variables, console)
    show_changed(changed, console)


@commands.command()
def apply(
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="KNOB=VALUE", help="Values to set, such as eth0/rx-usecs=10."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="File with a setting, as JSON."),
    ] = None,
    dry_run: DryRun = False,
    persistent: Annotated[
        bool,
        typer.Option("--persistent", help="Also apply the setting at each boot of the host."),
    ] = False,
    own: OwnConnection = False,
    state: State = STATE,
    root: Root = Path("/"),
    at_boot: Annotated[
        bool,
        typer.Option("--at-boot", help="Apply as the unit of --persistent does at each boot."),
    ] = False,
) -> None:
    """Set knobs of this host, all of them or none, until `vicinal tune restore`.

    The former values are recorded first. Variables of jobs are printed for a shell.
    """
    setting = _setting(values or [], file)
    job: dict[str, str] = {}
    for knob in variable_knobs(job):
        if knob.name in setting:
            knob.write(setting.pop(knob.name))
    host = TunedHost()
    applier = Applier(host, state / JOURNAL, {} if own else own_connection(host))
    if dry_run:
        _say_what_would_be(applier, setting)
    elif setting:
        with sole_command(state):
            if at_boot:
                _leave_out_what_failed(applier, root)
            say(applier.recover())
            with applier.lasting(Kind.BOOT if at_boot else Kind.APPLY) as work:
                work.apply(setting)
                changes = work.changes()
                if persistent:
                    options = ["--state", str(state), *(["--own-connection"] if own else [])]
                    for written in write_unit(root, setting, options):
                        typer.echo(f"wrote {written}")
            for change in changes:
                typer.echo(describe(change))
            if not changes:
                typer.echo("everything is set already")
    typer.echo(as_shell(job), nl=False)


@commands.command()
def restore(
    dry_run: DryRun = False,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Leave the host as it is, and forget the former values."),
    ] = False,
    state: State = STATE,
    root: Root = Path("/"),
) -> None:
    """Restore all former values, and apply nothing at the host's boot any more."""
    applier = Applier(TunedHost(), state / JOURNAL)
    if dry_run:
        for operation in reversed(applier.operations()):
            for change in reversed(operation.changes.values()):
                typer.echo(f"{change.knob} would be restored to {change.before}")
        return
    removed = remove_unit(root)
    for file in removed:
        typer.echo(f"removed {file}")
    said = []
    if (state / JOURNAL).exists():
        with sole_command(state):
            said = applier.forget() if forget else applier.restore()
    for line in said:
        typer.echo(line)
    if not said and not removed:
        typer.echo("nothing was set")


def _leave_out_what_failed(applier: Applier, root: Path) -> None:
    if applier.failed_at_start():
        disable_unit(root)
        raise VicinalError(
            "the host went down while this setting was applied at its last boot, so the setting"
            " is no longer applied",
            "try it again with `vicinal tune apply --persistent`, or remove it with `vicinal tune"
            " restore`",
        )


def _setting(values: list[str], file: Path | None) -> dict[str, Value]:
    setting = (read_setting(file) if file else {}) | parse_setting(values)
    if not setting:
        raise VicinalError("no setting was given", "name knobs, or a file with --from")
    return setting


def _say_what_would_be(applier: Applier, setting: Setting) -> None:
    for name, value in setting.items():
        knob = applier.knob(name)
        wanted, found = knob.check(value), knob.read()
        what = f"is {wanted} already" if found == wanted else f"would be {wanted}, and is {found}"
        typer.echo(f"{name} {what}")
