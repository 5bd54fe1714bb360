"""A setting as a profile of TuneD: a directory for /etc/tuned.

Its script sets what the setting is, as in scripts.py. TuneD's own net plugin could set coalescing,
but sets nothing with most versions of ethtool: it wants to know each line that `ethtool -c` prints.
TuneD before 2.25 does not know those of ethtool 5.15, and 2.25 not those of 6.4 (issues 726 and 819
of redhat-performance/tuned). So it is used on request alone.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.labs.tune.outputs.parts import Turn
from vicinal.labs.tune.outputs.scripts import script

ACTIVE = Path("/etc/tuned/active_profile")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNKNOWN = ("cqe-mode", "tx-aggr")
"""What of coalescing the net plugin has no words for."""


def tuned_files(
    name: str, turns: Sequence[Turn], base: Sequence[str], *, net_plugin: bool
) -> dict[str, str]:
    """The profile's files by their names; `base` are the profiles that it adds to.

    Raises VicinalError for a name that TuneD does not take.
    """
    for each in (name, *base):
        if not _NAME.fullmatch(each):
            raise VicinalError(
                f"{each!r} is no name of a TuneD profile", "use letters, digits, `_`, `-` and `.`"
            )
    if name in base:
        raise VicinalError(
            f"the profile {name} cannot include itself",
            "name another one with --include, or give this one a name with --name",
        )
    by_plugin = [each for each in turns if net_plugin and _net_plugin_has(each)]
    by_script = [each for each in turns if each not in by_plugin]
    main = ["[main]", "summary=Settings that vicinal tune export was given"]
    main += [f"include={','.join(base)}"] if base else []
    sections = ["\n".join(main)]
    if by_script:  # first, since a new number of queues undoes their moderation
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
    """The profiles that TuneD has active on this machine; none where it is not there."""
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
