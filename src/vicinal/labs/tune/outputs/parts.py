"""A setting as a script; its parts, checked so that each is nothing but a name or a value.

Other programs run files made of these parts as root. So names and values have only characters
without a meaning to a shell, to TuneD or to systemd. Other characters are refused.

The script is for any POSIX shell with ethtool, and needs nothing of Vicinal. Like `vicinal tune
apply`, it reads each value back. If a value is refused or ignored, the script restores the values
that it had set. All scripts have the same text (script.sh) with different tables.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from vicinal.base.errors import VicinalError
from vicinal.host.topology import parse_cpu_list, show_cpu_list
from vicinal.labs.tune.knob import Setting, Value
from vicinal.labs.tune.knobs import channels, coalescing, interrupts, rdma
from vicinal.labs.tune.knobs.catalogue import order_of
from vicinal.labs.tune.knobs.coalescing import CoalescingKnob
from vicinal.labs.tune.knobs.host import TunedHost, check_number, check_word
from vicinal.labs.tune.knobs.variables import VARIABLES

_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TEXT = re.compile(r"[A-Za-z0-9_.,:/+=@%^-]{1,256}")
_VARIABLES = frozenset(each.name for each in VARIABLES)
_TABLE = "@SETTINGS@\n"
_TITLE = "@TITLE@\n"
_STATE, _ACTION, _PROGRAMS = "@STATE@", "@ACTION@", "@PROGRAMS@"
_SETS = {"coalescing": "ethtool", "channels": "ethtool", "moderation": "rdma"}


@dataclass(frozen=True)
class Turn:
    """A knob of the host and its value, in the words of the program that sets the knob."""

    kind: str
    """`channels`, `affinity`, `coalescing` or `moderation`."""
    device: str
    part: str
    value: str

    @property
    def line(self) -> str:
        """The line in the scripts' tables."""
        return f"{self.kind} {self.device} {self.part} {self.value}"


@dataclass(frozen=True)
class Parts:
    """A setting, divided into the host's knobs and jobs' variables."""

    turns: tuple[Turn, ...]
    """Knobs of the host, in the order in which they are set."""
    variables: dict[str, str]
    """Variables of jobs; vicinal.labs.tune.knobs.variables.UNSET for a variable that must be
    unset.
    """


def parts_of(setting: Setting) -> Parts:
    """The parts of a setting.

    Raises VicinalError for an unknown knob, an invalid value, and a value that would not be safe in
    a script.
    """
    turns = [_turn(name, setting[name]) for name in sorted(setting, key=order_of) if "/" in name]
    variables = {name: _text(name, value) for name, value in setting.items() if "/" not in name}
    for name in variables.keys() - _VARIABLES:
        raise VicinalError(f"there is no knob {name!r}", "see the list of `vicinal tune show`")
    return Parts(tuple(turns), variables)


def _turn(name: str, value: Value) -> Turn:
    device, _, part = name.partition("/")
    if not _DEVICE.fullmatch(device):
        raise VicinalError(
            f"{device!r} cannot be the name of a device in a script",
            "give the interface a name of letters, digits, `_`, `-` and `.`",
        )
    if part in channels.PARTS:
        check_number(name, value)
        return Turn("channels", device, part.removeprefix("channels-"), str(value))
    if part == interrupts.PART:
        return Turn("affinity", device, part, _processors(name, value))
    if part == rdma.PART:
        check_word(name, value, {"off": 0, "on": 1})
        return Turn("moderation", device, part, str(value))
    if part in coalescing.PARTS:
        CoalescingKnob(TunedHost(), device, part).check(value)
        return Turn("coalescing", device, _by_ethtool(part), str(value))
    raise VicinalError(
        f"there is no knob {name!r}",
        "see the list of `vicinal tune show`; names are such as eth0/rx-usecs",
    )


def _by_ethtool(part: str) -> str:
    """ethtool's argument for a part: it takes `rx-frames-low` and prints `rx-frame-low`."""
    return part.replace("frame-", "frames-")


def _processors(name: str, value: Value) -> str:
    """Lists of processors as the kernel writes them, with `/` between; one list if all are
    equal.
    """
    lists = [show_cpu_list(tuple(set(parse_cpu_list(each)))) for each in str(value).split(" / ")]
    if "" in lists:
        raise VicinalError(
            f"{name} cannot be {value!r}",
            "write processors as 0, 0-3 or 0,2, with ` / ` between the lists of interrupts",
        )
    return lists[0] if len(set(lists)) == 1 else "/".join(lists)


def _text(name: str, value: Value) -> str:
    text = str(value)
    if not _TEXT.fullmatch(text):
        raise VicinalError(
            f"{name} cannot be {text!r} in a file for other tools",
            "use letters, digits and the characters _ . , : / + = @ % ^ -",
        )
    return text


def script(title: str, turns: Sequence[Turn], *, action: str = "set", state: str = "") -> str:
    """A script that sets these knobs; `action` is its default action: set or restore.

    `state` is the path of a file. With `state`, the script also has the actions start and stop,
    which TuneD calls: start stores the former values in the file, and stop restores them.
    """
    said = "".join(f"#   {each.device} {each.part} {each.value}\n" for each in turns)
    text = files(__package__).joinpath("script.sh").read_text()
    text = text.replace(_TITLE, f"# {title}\n{said}")
    programs = sorted({_SETS[each.kind] for each in turns if each.kind in _SETS})
    text = text.replace(_PROGRAMS, " ".join(programs))
    text = text.replace(_TABLE, "".join(f"{each.line}\n" for each in turns))
    return text.replace(_STATE, state).replace(_ACTION, action)
