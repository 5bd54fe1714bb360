"""`vicinal tune export`: a setting as files that others use."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, write_atomically
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.catalogue import knob_named
from vicinal.labs.tune.knobs.machine import Machine
from vicinal.labs.tune.outputs.environment import environment_files
from vicinal.labs.tune.outputs.found import read_found
from vicinal.labs.tune.outputs.parts import Parts, parts_of
from vicinal.labs.tune.outputs.scripts import script
from vicinal.labs.tune.outputs.tuned import active_profiles, tuned_files
from vicinal.labs.tune.profile import profile_text, thresholds_of
from vicinal.labs.tune.settings.values import parse_setting


class Format(StrEnum):
    """What to write."""

    TUNED = "tuned"
    ETHTOOL = "ethtool"
    ENVIRONMENT = "environment"
    PROFILE = "profile"
    ALL = "all"


def export(
    to: Annotated[Path, typer.Option(metavar="DIRECTORY", help="Where the files go; it is made.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="What `vicinal tune run` has found."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="KNOB=VALUE", help="A setting, such as eth0/rx-usecs=10."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.ALL,
    phase: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a search's phases the one whose setting it is."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="What the TuneD profile is called. Default: vicinal."),
    ] = "vicinal",
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="The TuneD profile that it adds to. Default: that which is active here.",
        ),
    ] = None,
    net_plugin: Annotated[
        bool,
        typer.Option(
            "--net-plugin",
            help="Leave interrupt moderation to TuneD's net plugin, which few versions can do.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are there.")
    ] = False,
) -> None:
    """Write a setting as files for others: a TuneD profile, ethtool scripts, variables for MPI.

    The setting is what a search found, or is given. Nothing is set.
    """
    if (folder is None) == (not values):
        raise VicinalError(
            "there is no setting, or two of them", "name a folder or --setting, one of both"
        )
    if folder is not None:
        found = read_found(folder, phase)
        setting, present = found.setting, found.present
    elif phase is not None:
        raise VicinalError("a setting has no phases", "leave out --phase, or name a folder")
    else:
        setting = parse_setting(values or [])
        present = _present(setting)
    parts = parts_of(setting)
    files: dict[str, str] = {}
    if _wanted(form, Format.TUNED, parts):
        base = include if include is not None else active_profiles()
        base = [each for each in base if each != name or include is not None]
        written = tuned_files(name, parts.turns, base, net_plugin=net_plugin)
        files |= {f"tuned/{name}/{file}": text for file, text in written.items()}
    if _wanted(form, Format.ETHTOOL, parts):
        files["ethtool/set.sh"] = script("Sets, unless told otherwise:", parts.turns)
        before = parts_of({each: present[each] for each in setting if each in present}).turns
        if len(before) == len(parts.turns):
            title = "Restores what there was when this was written, unless told otherwise:"
            files["ethtool/restore.sh"] = script(title, before, action="restore")
        else:
            _say("there is no restore.sh, since not all of it can be read on this machine")
    if _wanted(form, Format.ENVIRONMENT, parts):
        written = environment_files(parts)
        files |= {f"environment/{file}": text for file, text in written.items()}
    thresholds = thresholds_of(setting)
    if form is Format.PROFILE and not thresholds:
        raise VicinalError("the setting has no thresholds", "choose another --format")
    if thresholds and form in (Format.PROFILE, Format.ALL):
        files["vicinal/profile"] = profile_text(thresholds, "For /etc or ~/.config, as it is here")
    for path in _write(to, files, force=force):
        typer.echo(f"wrote {path}")


def _wanted(form: Format, this: Format, parts: Parts) -> bool:
    has = bool(parts.variables if this is Format.ENVIRONMENT else parts.turns)
    if form is this and not has:
        what = "variables of jobs" if this is Format.ENVIRONMENT else "knobs of a machine"
        raise VicinalError(f"the setting has no {what}", "choose another --format")
    return has and form in (this, Format.ALL)


def _present(setting: Setting) -> dict[str, Value]:
    """What can be read of it on this machine."""
    machine = Machine()
    found: dict[str, Value] = {}
    why: dict[str, None] = {}
    for name in setting:
        if "/" in name:
            try:
                found[name] = knob_named(machine, name).read()
            except VicinalError as error:
                why[error.message] = None
    for each in why:
        _say(each)
    return found


def _say(line: str) -> None:
    typer.echo(f"vicinal: {line}", err=True)


def _write(directory: Path, files: dict[str, str], *, force: bool) -> list[Path]:
    paths = {directory / name: text for name, text in files.items()}
    there = [path for path in paths if path.exists() or path.is_symlink()]
    if there and not force:
        raise VicinalError(f"{there[0]} is there already", "name another directory, or use --force")
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            is_program = path.suffix == ".sh" and "environment" not in path.stem
            mode = 0o755 if is_program else 0o644
            write_atomically(path, text, Durability.NONE, mode=mode)
    except OSError as error:
        raise VicinalError(
            f"{error.filename or directory}: {describe_os_error(error)}", "name another directory"
        ) from error
    return list(paths)
