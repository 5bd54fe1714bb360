"""How messages show what a user wrote, and what may be there instead.

Messages of the command line, of YAML files and of plans use the same words.
"""

import difflib
import json
from collections.abc import Iterable, Sequence

_LONGEST = 60
"""Letters of a value in a message."""


def in_quotes(given: object) -> str:
    """A value as a user wrote it: text in quotes, numbers plain, cut where it is long."""
    text = json.dumps(given, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def one_of(choices: Sequence[object]) -> str:
    """Choices in words: `core, numa or none`."""
    *others, last = [str(each) for each in choices]
    return f"{', '.join(others)} or {last}" if others else last


def closest(given: str, known: Iterable[str]) -> str | None:
    """The known word that is most like the given one; None if none is like it."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return close[0] if close else None


def suggestion(given: str, known: Iterable[str]) -> str:
    """A question after that word; empty if there is none."""
    close = closest(given, known)
    return "" if close is None else f"did you mean {close}?"


def nearest(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the known one most like it, or all of them."""
    names = sorted(known)
    return suggestion(name, names) or f"use {', '.join(names)}"


def show_count(count: int, what: str) -> str:
    """A number and its noun: "1 node", "2 nodes"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
