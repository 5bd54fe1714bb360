"""`vicinal tune export`: a setting as files for other tools.

The script of a TuneD profile sets the values, as script() writes it. TuneD's own net plugin could
set coalescing, but fails with most versions of ethtool: the plugin must know each line that
`ethtool -c` prints. TuneD before 2.25 does not know the lines of ethtool 5.15, and 2.25 does not
know those of 6.4 (issues 726 and 819 of redhat-performance/tuned). So the plugin is used only on
request.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, write_atomically
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs.catalogue import knob_named
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.knobs.variables import UNSET
from vicinal.labs.tune.outputs.parts import Parts, Turn, parts_of, script
from vicinal.labs.tune.profile import profile_text, thresholds_of
from vicinal.labs.tune.settings.boot_unit import check_setting
from vicinal.labs.tune.settings.values import parse_setting

ACTIVE = Path("/etc/tuned/active_profile")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNKNOWN = ("cqe-mode", "tx-aggr")
"""Prefixes of coalescing parts that the net plugin cannot set."""


class Format(StrEnum):
    """The kinds of files."""

    TUNED = "tuned"
    ETHTOOL = "ethtool"
    ENVIRONMENT = "environment"
    PROFILE = "profile"
    ALL = "all"


def export(
    to: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Directory for the files, created if needed.")
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="A result folder of `vicinal tune run`."),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="KNOB=VALUE", help="A setting, such as eth0/rx-usecs=10."
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Files to write.")] = Format.ALL,
    phase: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Phase of the search whose setting to write."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Name of the TuneD profile. Default: vicinal."),
    ] = "vicinal",
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="TuneD profile to include. Default: the active profile of this host.",
        ),
    ] = None,
    net_plugin: Annotated[
        bool,
        typer.Option(
            "--net-plugin",
            help="Set interrupt moderation by TuneD's net plugin, which works in few versions.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a setting as files for other tools: a TuneD profile, ethtool scripts, variables for
    MPI.

    The setting is the result of a search, or given by --setting. Nothing is set.
    """
    if (folder is None) == (not values):
        raise VicinalError("export needs exactly one setting", "name a folder, or give --setting")
    if folder is not None:
        found = read_found(folder, phase)
        setting, present = found.setting, found.present
    elif phase is not None:
        raise VicinalError(
            "--phase was given, and --setting has no phases", "leave out --phase, or name a folder"
        )
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
            title = "Restores the values of the time of writing, unless told otherwise:"
            files["ethtool/restore.sh"] = script(title, before, action="restore")
        else:
            _say("restore.sh is not written, because this host cannot read all values")
    if _wanted(form, Format.ENVIRONMENT, parts):
        written = environment_files(parts)
        files |= {f"environment/{file}": text for file, text in written.items()}
    thresholds = thresholds_of(setting)
    if form is Format.PROFILE and not thresholds:
        raise VicinalError("the setting has no thresholds", "choose another --format")
    if thresholds and form in (Format.PROFILE, Format.ALL):
        files["vicinal/profile"] = profile_text(
            thresholds, "For /etc or ~/.config, with its folder"
        )
    for path in _write(to, files, force=force):
        typer.echo(f"wrote {path}")


def _wanted(form: Format, this: Format, parts: Parts) -> bool:
    has = bool(parts.variables if this is Format.ENVIRONMENT else parts.turns)
    if form is this and not has:
        what = "variables of jobs" if this is Format.ENVIRONMENT else "knobs of a host"
        raise VicinalError(f"the setting has no {what}", "choose another --format")
    return has and form in (this, Format.ALL)


def _present(setting: Setting) -> dict[str, Value]:
    """The present values that this host can read."""
    host = TunedHost()
    found: dict[str, Value] = {}
    why: dict[str, None] = {}
    for name in setting:
        if "/" in name:
            try:
                found[name] = knob_named(host, name).read()
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
        raise VicinalError(f"{there[0]} exists already", "name another directory, or use --force")
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


@dataclass(frozen=True)
class FoundSetting:
    """The setting to write, and the present setting at the time of the search."""

    setting: Setting
    present: Setting


def read_found(folder: Path, phase: str | None) -> FoundSetting:
    """The better setting that a search found: that of `phase`, or the one for all phases.

    Raises VicinalError if there is none, if each phase has its own and `phase` is None, and if the
    folder has no result.
    """
    # Loaded here: other commands do not need it.
    from vicinal.labs.tune.measuring.folder import read_result

    result = read_result(folder)
    try:
        phases = {each["phase"]: each["setting"] for each in result["phases"]}
        present = check_setting(result["present"], str(folder))
        chosen = _choose(folder, phases, result["common"], phase)
        setting = check_setting(chosen, str(folder))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VicinalError(
            f"{folder} has no result of a search", "name the folder of a `vicinal tune run`"
        ) from error
    if setting == present:
        raise VicinalError(
            f"{folder} has no better setting than the present one"
            + (f" for {phase!r}" if phase else ""),
            "write any setting with --setting",
        )
    return FoundSetting(setting, present)


def _choose(folder: Path, phases: dict[str, Any], common: Any, phase: str | None) -> Any:
    named = ", ".join(phases)
    if phase is None:
        if common is None:
            raise VicinalError(
                f"each phase in {folder} has a setting of its own",
                f"choose one with --phase: {named}",
            )
        return common
    if phase not in phases:
        raise VicinalError(f"{folder} has no phase {phase!r}", f"name one of {named}")
    return phases[phase]


def environment_files(parts: Parts) -> dict[str, str]:
    """The files of variables by name, with their texts.

    Only the shell's file can unset a variable; the other formats can only add variables.
    """
    given = {name: text for name, text in parts.variables.items() if text != UNSET}
    unset = [name for name, text in parts.variables.items() if text == UNSET]
    # No value has a character with a meaning in one of these formats: parts.py checks.
    assigned = [f"{name}={text}" for name, text in given.items()]
    shell = [f"unset {name}" for name in unset] + [f"export {each}" for each in assigned]
    left = "".join(f"# Leave {name} unset: its library uses its default\n" for name in unset)
    return {
        "environment.sh": "# For a shell: . ./environment.sh\n" + _lines(shell),
        "environment.conf": f"# For a unit of systemd: EnvironmentFile=\n{left}{_lines(assigned)}",
        "openmpi-mca-params.conf": "# For Open MPI: lines for ~/.openmpi/mca-params.conf\n"
        + left
        + (f"mca_base_env_list = {';'.join(assigned)}\n" if assigned else ""),
        # Files of arguments have no comments.
        "openmpi.arguments": _lines([f"-x {each}" for each in assigned]),
        "mpich.arguments": _lines([f"-genv {name} {text}" for name, text in given.items()]),
    }


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def tuned_files(
    name: str, turns: Sequence[Turn], base: Sequence[str], *, net_plugin: bool
) -> dict[str, str]:
    """The profile's files by name, with their texts; the profile includes the profiles `base`.

    Raises VicinalError for a name that TuneD does not accept.
    """
    for each in (name, *base):
        if not _NAME.fullmatch(each):
            raise VicinalError(
                f"{each!r} cannot be a TuneD profile's name",
                "use letters, digits, `_`, `-` and `.`",
            )
    if name in base:
        raise VicinalError(
            f"the profile {name!r} cannot include itself",
            "name another profile with --include, or this profile with --name",
        )
    by_plugin = [each for each in turns if net_plugin and _net_plugin_has(each)]
    by_script = [each for each in turns if each not in by_plugin]
    main = ["[main]", "summary=Settings that vicinal tune export was given"]
    main += [f"include={','.join(base)}"] if base else []
    sections = ["\n".join(main)]
    if by_script:  # first, because a new number of queues resets their moderation
        sections.append("[script]\nscript=${i:PROFILE_DIR}/script.sh")
    for device in dict.fromkeys(each.device for each in by_plugin):
        values = " ".join(
            f"{each.part} {each.value}" for each in by_plugin if each.device == device
        )
        sections.append(
            f"[net_{device}]\ntype=net\ndevices={device}\ndynamic=false\ncoalesce={values}"
        )
    files = {"tuned.conf": "\n\n".join(sections) + "\n"}
    if by_script:
        title = f"The script of the TuneD profile {name}, which calls it with start or stop:"
        files["script.sh"] = script(title, by_script, state=f"/run/vicinal/tuned-{name}")
    return files


def active_profiles(file: Path = ACTIVE) -> list[str]:
    """TuneD's active profiles on this host; empty without TuneD. Raises VicinalError if
    unreadable.
    """
    try:
        return file.read_text().split()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VicinalError(
            f"{file}: {describe_os_error(error)}", "name the profile with --include"
        ) from error


def _net_plugin_has(turn: Turn) -> bool:
    return turn.kind == "coalescing" and not turn.part.startswith(_UNKNOWN)
