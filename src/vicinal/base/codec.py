"""Converts dataclasses to plain values for JSON, and back, by the types of their fields.

encode() takes None, numbers, strings, enumerations, paths, IPv4 interfaces, sequences, mappings and
dataclasses of these. decode() chooses the conversion of a plain value by the type of its field.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from ipaddress import IPv4Interface
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

UNRECORDED: Mapping[str, bool] = {"unrecorded": True}
"""Metadata of a field that encode() leaves out, and that has its default after decode()."""
SPARSE: Mapping[str, bool] = {"sparse": True}
"""Metadata of a field that encode() leaves out if it is None, as it does with each None in it."""


def encode(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain values, in the order of the fields."""
    encoded: dict[str, Any] = _encoded(value, sparse=False)
    return encoded


def decode(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """The inverse of encode(), for a dataclass.

    A field that `values` lacks gets its default. Keys that name no field are ignored.
    """
    hashable: Any = kind  # which mypy does not take a type[_T] for
    types = _types(hashable)
    return kind(**{name: _decoded(types[name], values[name]) for name in types if name in values})


def _encoded(value: Any, *, sparse: bool) -> Any:
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case PurePath() | IPv4Interface():
            return str(value)
        case Mapping():
            return {key: _encoded(each, sparse=sparse) for key, each in value.items()}
        case tuple() | list():
            return [_encoded(each, sparse=sparse) for each in value]
    encoded = {}
    for field in fields(value):
        each = getattr(value, field.name)
        leaves_out = sparse or "sparse" in field.metadata
        if "unrecorded" not in field.metadata and not (leaves_out and each is None):
            encoded[field.name] = _encoded(each, sparse=leaves_out)
    return encoded


@cache
def _types(kind: Any) -> dict[str, Any]:
    """The types of the fields that encode() writes."""
    types = get_type_hints(kind)
    return {
        field.name: types[field.name]
        for field in fields(kind)
        if "unrecorded" not in field.metadata
    }


def _decoded(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if origin in (Union, UnionType):
        (kind,) = (each for each in arguments if each is not NoneType)
        return _decoded(kind, value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            arguments = arguments[:1] * len(value)
        return tuple(_decoded(*each) for each in zip(arguments, value, strict=True))
    if origin is Mapping:
        return {key: _decoded(arguments[1], each) for key, each in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return decode(kind, value)
    return kind(value) if issubclass(kind, Enum | PurePath | IPv4Interface) else value
