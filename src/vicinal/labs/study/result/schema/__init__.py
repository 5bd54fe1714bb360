"""JSON schemas of a result's files, and validation by them."""

import json
from functools import cache
from importlib import resources
from typing import Any

from vicinal.base.schema_check import surely_fits
from vicinal.base.schema_faults import faults_of


def problem_of(values: object, name: str) -> str | None:
    """The first violation of the schema `name` (manifest, trial or summary), or None."""
    schema = _schema(name)
    if surely_fits(schema, values):
        return None
    import jsonschema  # heavy

    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(values)
    )
    if error is None:
        return None
    return next(faults_of(error, name, "")).message


@cache
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((resources.files(__name__) / f"{name}.json").read_text())
    return schema
