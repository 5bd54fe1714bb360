"""A setting as a script for any POSIX shell with ethtool; the script needs nothing of Vicinal.

Like `vicinal tune apply`, the script reads each value back. If a value is refused or ignored, the
script restores the values that it had set. All scripts have the same text (script.sh) with
different tables.
"""

from collections.abc import Sequence
from importlib.resources import files

from vicinal.labs.tune.outputs.parts import Turn

_TABLE = "@SETTINGS@\n"
_TITLE = "@TITLE@\n"
_STATE, _ACTION, _PROGRAMS = "@STATE@", "@ACTION@", "@PROGRAMS@"
_SETS = {"coalescing": "ethtool", "channels": "ethtool", "moderation": "rdma"}


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
