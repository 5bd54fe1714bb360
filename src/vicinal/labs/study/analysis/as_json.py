"""Summaries as JSON, for summary.json and for `vicinal study compare --json`.

The names are those of the dataclasses in summary.py; the schema is
vicinal/labs/study/result/schema.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from vicinal.base.errors import VicinalError
from vicinal.labs.study.analysis.summary import Summary
from vicinal.labs.study.file.json_form import study_from_json, study_to_json
from vicinal.labs.study.result.schema import problem_of

UNITS = {
    "size": "bytes",
    "across, values, pooled, tail, base, test": "the `unit` beside them",
    "parts": "s",
    "split": "s; its ratios are test/base",
    "ratio": "test/base",
    "gain": "a part of the base; negative where the test is worse",
    "efficiency": "base/test where lower is better, else test/base",
    "measured": "the unit of the published figure beside it",
}
"""Units of the values in a summary."""


def summary_to_json(summary: Summary) -> dict[str, Any]:
    """The argument for ResultWriter.write_summary(), together with UNITS."""
    values = {
        field.name: to_json(getattr(summary, field.name))
        for field in fields(summary)
        if field.name != "study"
    }
    return {"study": study_to_json(summary.study), **values}


def summary_from_json(values: Mapping[str, Any]) -> Summary:
    """The summary from what Result.summary() returns.

    Raises VicinalError if the values are not a complete summary.
    """
    remedy = "create it again from the samples: vicinal study report"
    missing = [field.name for field in fields(Summary) if field.name not in values]
    if missing:
        raise VicinalError(f"the summary has no {missing[0]}", remedy)
    problem = problem_of(
        {"schema": 1, "created": "", "trials": 0, "units": {}} | dict(values), "summary"
    )
    if problem is not None:
        raise VicinalError(f"the summary is damaged ({problem})", remedy)
    hints = _hints(Summary)
    found = {
        field.name: _from_json(hints[field.name], values[field.name])
        for field in fields(Summary)
        if field.name != "study"
    }
    return Summary(study=study_from_json(values["study"]), **found)


def to_json(value: Any) -> Any:
    """Dataclasses, enumerations, mappings and sequences as JSON."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return value


def _from_json(kind: Any, value: Any) -> Any:
    """The inverse of to_json() for a type. The schema was checked before."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (each for each in inner if each is not types.NoneType)
        return _from_json(kind, value)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return tuple(_from_json(inner[0], each) for each in value)
        return tuple(_from_json(each, part) for each, part in zip(inner, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            _from_json(inner[0], key): _from_json(inner[1], each) for key, each in value.items()
        }
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _from_json(hints[name], each) for name, each in value.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return float(value) if kind is float else value


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
