"""How messages quote a user's words and list permitted words.

Messages of the command line, of YAML files and of plans use the same wording.
"""

import difflib
import json
from collections.abc import Iterable, Sequence

_LONGEST = 60
"""Greatest length of a quoted value, in characters."""


def in_quotes(given: object) -> str:
    """Quote a value for a message: text in quotation marks, numbers plain, long values cut to 60
    characters."""
    text = json.dumps(given, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def one_of(choices: Sequence[object]) -> str:
    """Join choices: `core, numa or none`."""
    *others, last = [str(each) for each in choices]
    return f"{', '.join(others)} or {last}" if others else last


def closest(given: str, known: Iterable[str]) -> str | None:
    """The known word that most resembles the given word; None if no word is similar."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return close[0] if close else None


def suggestion(given: str, known: Iterable[str]) -> str:
    """The question `did you mean WORD?` for the closest known word; empty if no word is similar."""
    close = closest(given, known)
    return "" if close is None else f"did you mean {close}?"


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the closest known name, or the list of all known names."""
    names = sorted(known)
    return suggestion(name, names) or f"use {', '.join(names)}"


def show_count(count: int, what: str) -> str:
    """A number and its noun: "1 node", "2 nodes"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
