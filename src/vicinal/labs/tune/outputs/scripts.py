"""A setting as a script for any POSIX shell, with ethtool, that needs nothing of Vicinal's.

Like `vicinal tune apply` it reads each value back, and where one is refused or ignored it sets back
what it had set. It is the same script each time (script.sh), with another table in it.
"""

from collections.abc import Sequence
from importlib.resources import files

from vicinal.labs.tune.outputs.parts import Turn

_TABLE = "@SETTINGS@\n"
_TITLE = "@TITLE@\n"
_STATE, _ACTION, _PROGRAMS = "@STATE@", "@ACTION@", "@PROGRAMS@"
_SETS = {"coalescing": "ethtool", "channels": "ethtool", "moderation": "rdma"}


def script(title: str, turns: Sequence[Turn], *, action: str = "set", state: str = "") -> str:
    """A script that sets these; `action` is what it does without an argument: set or restore.

    With `state`, the path of a file, it also starts and stops as TuneD wants it: what was there at
    the start is kept in the file, and set again at the stop.
    """
    said = "".join(f"#   {each.device} {each.part} {each.value}\n" for each in turns)
    text = files(__package__).joinpath("script.sh").read_text()
    text = text.replace(_TITLE, f"# {title}\n{said}")
    programs = sorted({_SETS[each.kind] for each in turns if each.kind in _SETS})
    text = text.replace(_PROGRAMS, " ".join(programs))
    text = text.replace(_TABLE, "".join(f"{each.line}\n" for each in turns))
    return text.replace(_STATE, state).replace(_ACTION, action)
