"""Reading `context.sh`, the file of a context, without executing it.

OpenNebula writes shell assignments, NAME='value'. A quote in a value is '\\'', and a value may have
several lines.
"""

import base64
import re
import shlex
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ContextError(Exception):
    """A part of a context is invalid; the message says which and why."""


def read_context(text: str) -> dict[str, str]:
    """The variables of a `context.sh` by name.

    Ignores everything that is not an assignment. Raises ContextError if a quotation does not end.
    """
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ContextError("context.sh cannot be read: a quotation in it does not end") from error
    found = (word.partition("=") for word in words)
    return {name: value for name, is_there, value in found if is_there and _NAME.fullmatch(name)}


def decoded(context: Mapping[str, str], name: str) -> str:
    """The value of NAME_BASE64, or else of NAME; "" if the context has neither.

    Raises ContextError if NAME_BASE64 is not text in base64.
    """
    encoded = context.get(f"{name}_BASE64", "").strip()
    if not encoded:
        return context.get(name, "")
    try:
        # Lines may have been wrapped, so white space is ignored.
        return base64.b64decode("".join(encoded.split()), validate=True).decode()
    except ValueError as error:
        raise ContextError(f"{name}_BASE64 is not text in base64") from error


def says_yes(value: str) -> bool:
    """Whether a value is one of OpenNebula's words for yes."""
    return value.strip().lower() in ("1", "true", "yes", "y")


def says_no(value: str) -> bool:
    """Whether a value is one of OpenNebula's words for no."""
    return value.strip().lower() in ("0", "false", "no", "n")
