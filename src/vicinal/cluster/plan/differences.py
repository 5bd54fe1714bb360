"""Differences between two settings of a resource: the old and new value of each attribute."""

from collections.abc import Iterator
from enum import Enum
from itertools import zip_longest
from typing import TypeAlias

from vicinal.base.sizes import show_short_size
from vicinal.base.wording import in_quotes
from vicinal.cluster.plan.resource import Json, Settings

_UNITS = {"_bytes": 1, "_mib": 1 << 20}
"""Suffixes of the names of sizes, and the unit of each in bytes."""
_SIZES = {"memory": 1}
"""Sizes without such a suffix, and their units in bytes."""
_WHOLE = "spec"
"""An attribute that contains a whole node; its parts are shown as the node's attributes."""


class _Missing(Enum):
    """The value of an attribute that only the other settings have."""

    MISSING = "not set"


_Value: TypeAlias = "Json | _Missing"


def differences(before: Settings, after: Settings) -> tuple[str, ...]:
    """Return each attribute that differs, such as `members: 16 -> 24`, sorted by name."""
    return tuple(sorted(_compare("", dict(before), dict(after))))


def _compare(name: str, before: _Value, after: _Value) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            inner = key if name in ("", _WHOLE) else f"{name}.{key}"
            yield from _compare(
                inner, before.get(key, _Missing.MISSING), after.get(key, _Missing.MISSING)
            )
    elif isinstance(before, list) and isinstance(after, list) and _has_parts(before, after):
        pairs = zip_longest(before, after, fillvalue=_Missing.MISSING)
        for index, (old, new) in enumerate(pairs):
            yield from _compare(f"{name}[{index}]", old, new)
    else:
        shown, unit = _unit(name)
        yield f"{shown}: {_show(before, unit)} -> {_show(after, unit)}"


def _has_parts(*lists: list[Json]) -> bool:
    return any(isinstance(each, dict | list) for items in lists for each in items)


def _unit(name: str) -> tuple[str, int | None]:
    """Return an attribute's name for people, and for a size the unit in bytes."""
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending), unit
    return name, _SIZES.get(name.rpartition(".")[2])


def _show(value: _Value, unit: int | None) -> str:
    if value is None or isinstance(value, _Missing):
        return "not set"
    if unit is not None and isinstance(value, int):
        return show_short_size(unit * value)
    return in_quotes(value)
