"""Explains in plain English why values do not fit their JSON schema.

Each fault names its position, the value there, the permitted values, and a suggestion. The
permitted values come from the schema's keywords. For a pattern they come from the schema's `title`,
a noun phrase, and from its `examples`. Messages do not use descriptions, which are meant for
editors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vicinal.base.wording import closest, in_quotes, nearest, one_of, suggestion

if TYPE_CHECKING:
    from jsonschema import ValidationError

Position = tuple[str | int, ...]
"""Keys and item numbers, from the top of the file."""

_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "keys and values",
    "null": "nothing",
}
_FEW = 8
"""Largest number of keys that a message lists."""
_NOT_EMPTY = r"\S"
_NUMBER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class Fault:
    """One error in a file."""

    position: Position
    message: str
    remedy: str
    unknown: bool = False
    """Whether the position is that of an unknown key."""
    missing: bool = False
    """Whether the position is that of a missing key."""
    meant: Position = ()
    """The position of the known key that the unknown key resembles."""


def faults_of(error: "ValidationError", kind: str, begin: str) -> Iterator[Fault]:
    """Yield the faults behind one error of the jsonschema library.

    `kind` is the name of such a file in messages. `begin` is the remedy for a file of another kind.
    """
    position: Position = tuple(error.absolute_path)
    asked: Any = error.validator_value
    found: Any = error.instance
    if "propertyNames" in error.absolute_schema_path:
        inside = f" in {name_of(position)}" if position else ""
        yield Fault(position, f"{in_quotes(found)} cannot be a key{inside}", _remedy(error, found))
        return
    match error.validator:
        case "additionalProperties" if asked is False:
            schema: Any = error.schema
            for key in [each for each in found if each not in schema["properties"]]:
                name = f" in {name_of(position)}" if position else ""
                remedy = nearest(str(key), schema["properties"])
                close = closest(str(key), schema["properties"])
                yield Fault(
                    (*position, key),
                    f"unknown key {key if isinstance(key, str) else in_quotes(key)}{name}",
                    remedy,
                    unknown=True,
                    meant=() if close is None else (*position, close),
                )
        case "required":
            yield from _missing(position, asked, found)
        case "anyOf" if all(each.keys() == {"required"} for each in asked):
            # The keys that a part needs, by alternatives: the first is the usual one.
            yield from _missing(position, asked[0]["required"], found)
        case "type" if not position:
            yield Fault(position, f"the file is not a {kind}, which has keys and values", begin)
        case "uniqueItems":
            yield Fault(position, f"{name_of(position)} has an item twice", "name each item once")
        case _:
            message = f"{name_of(position)} cannot be {in_quotes(found)}"
            yield Fault(position, message, _remedy(error, found))


def _missing(position: Position, asked: Sequence[str], found: Any) -> Iterator[Fault]:
    whole = name_of(position) or "the file"
    for key in [each for each in asked if each not in found]:
        yield Fault((*position, key), f"{whole} has no {key}", "add it", missing=True)


def name_of(position: Sequence[str | int]) -> str:
    """A position in a file in the notation `nodes[0].cpus`."""
    text = ""
    for step in position:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _remedy(error: "ValidationError", found: Any) -> str:
    schema: Any = error.schema
    if "enum" in schema:
        guess = suggestion(str(found), [str(each) for each in schema["enum"]])
        return f"choose {one_of(schema['enum'])}" + (f"; {guess}" if guess else "")
    asked = schema.get("type", ())
    kinds = [asked] if isinstance(asked, str) else list(asked)
    hint = _hint(kinds, found)
    if hint and kinds == ["array"]:
        return hint
    return f"give {expected(schema)}" + (f"; {hint}" if hint else "")


def expected(schema: Mapping[str, Any]) -> str:
    """The permitted values as a noun phrase: `a whole number from 1 to 512`."""
    examples = schema.get("examples", ())
    such = f", such as {one_of(examples)}" if examples else ""
    if "title" in schema:
        return f"{schema['title']}{such}"
    if schema.get("pattern") == _NOT_EMPTY:
        return f"text that is not empty{such}"
    asked = schema.get("type", "string")
    kinds = [asked] if isinstance(asked, str) else list(asked)
    words = one_of([_TYPES[kind] for kind in kinds])
    keys = list(schema.get("properties", ()))
    known = f", of {one_of(keys)}" if kinds == ["object"] and 0 < len(keys) <= _FEW else ""
    return f"{words}{_bounds(schema)}{known}{such}"


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if least is not None and most is not None:
        return f" from {least} to {most}"
    bounds = []
    if least is not None:
        bounds.append(f"not below {least}")
    if above is not None:
        bounds.append(f"above {above}")
    if most is not None:
        bounds.append(f"not above {most}")
    if below is not None:
        bounds.append(f"below {below}")
    for key, what in (("minItems", "item"), ("minProperties", "key")):
        if key in schema:
            bounds.append(f"with {schema[key]} {what} or more")
    for key, what in (("maxItems", "items"),):
        if key in schema:
            bounds.append(f"with {schema[key]} {what} at most")
    return f" {' and '.join(bounds)}" if bounds else ""


def _hint(kinds: Sequence[str], found: Any) -> str:
    """The correct notation of a value, if the mistake is clear; otherwise an empty string."""
    if "array" in kinds and not isinstance(found, list | dict):
        return "write a list: [...], or a line with a hyphen for each"
    numbers = {"integer", "number"} & {*kinds}
    if numbers and "string" not in kinds and isinstance(found, str) and _NUMBER.fullmatch(found):
        return f"write it without quotation marks: {found}"
    if kinds == ["string"] and isinstance(found, bool | int | float):
        return f'write it in quotation marks: "{str(found).lower()}"'
    return ""
