"""Checks values against a JSON schema without loading the library that explains errors.

Most files are correct, and loading the library takes longer than most commands take to run. So
`surely_fits` checks each file first. The library checks only the files that `surely_fits` does not
accept.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "default", "examples", "format"}
"""Keywords that constrain nothing. The library checks formats only on request."""


def surely_fits(schema: Mapping[str, Any], values: Any) -> bool:
    """Whether values certainly fit a schema; False also if this module cannot decide.

    This module does not know all keywords. It also cannot decide about values for which JSON and
    Python define equality differently, such as 1.0 and 1.
    """
    return _fits(schema, schema, values)


def _fits(whole: Mapping[str, Any], schema: Mapping[str, Any] | bool, value: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    return all(
        _follows(whole, schema, keyword, asked, value)
        for keyword, asked in schema.items()
        if keyword not in _ANNOTATIONS
    )


def _follows(
    whole: Mapping[str, Any], schema: Mapping[str, Any], keyword: str, asked: Any, value: Any
) -> bool:
    match keyword:
        case "type":
            return any(_TYPES[kind](value) for kind in ([asked] if type(asked) is str else asked))
        case "$ref":
            return _fits(whole, _part(whole, asked), value)
        case "enum":
            return isinstance(value, str) and value in [each for each in asked if type(each) is str]
        case "pattern":
            return not isinstance(value, str) or re.search(asked, value) is not None
        case "minimum":
            return not _TYPES["number"](value) or value >= asked
        case "maximum":
            return not _TYPES["number"](value) or value <= asked
        case "exclusiveMinimum":
            return not _TYPES["number"](value) or value > asked
        case "exclusiveMaximum":
            return not _TYPES["number"](value) or value < asked
        case "items":
            begin = len(schema.get("prefixItems", ()))
            return not isinstance(value, list) or all(
                _fits(whole, asked, each) for each in value[begin:]
            )
        case "prefixItems":
            return not isinstance(value, list) or all(
                _fits(whole, part, each) for part, each in zip(asked, value, strict=False)
            )
        case "anyOf":
            return any(_fits(whole, part, value) for part in asked)
        case "minLength":
            return not isinstance(value, str) or len(value) >= asked
        case "minItems":
            return not isinstance(value, list) or len(value) >= asked
        case "maxItems":
            return not isinstance(value, list) or len(value) <= asked
        case "uniqueItems":
            return not isinstance(value, list) or not asked or _are_different_texts(value)
        case "required":
            return not isinstance(value, dict) or all(key in value for key in asked)
        case "minProperties":
            return not isinstance(value, dict) or len(value) >= asked
        case "propertyNames":
            return not isinstance(value, dict) or all(_fits(whole, asked, key) for key in value)
        case "properties":
            return not isinstance(value, dict) or all(
                _fits(whole, asked[key], each) for key, each in value.items() if key in asked
            )
        case "additionalProperties":
            known = schema.get("properties", {})
            return not isinstance(value, dict) or all(
                _fits(whole, asked, each) for key, each in value.items() if key not in known
            )
    return False


def _are_different_texts(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values) and len(set(values)) == len(values)


def _part(whole: Mapping[str, Any], reference: str) -> Any:
    """The schema behind `#/$defs/name`; for any other reference False, the schema that no value
    fits."""
    start, _, name = reference.rpartition("/")
    return whole.get("$defs", {}).get(name, False) if start == "#/$defs" else False
