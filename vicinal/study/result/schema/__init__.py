"""JSON schemas of a result's files, and checking against them."""

import json
from importlib import resources
from typing import Any


def problem_of(values: object, name: str) -> str | None:
    """What is wrong with data by the schema `name` (manifest, trial or summary), or None."""
    import jsonschema  # heavy

    text = (resources.files(__name__) / f"{name}.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(values)
    )
    if error is None:
        return None
    return f"{error.json_path}: {error.message}"
