"""JSON schemas of the results and of the bars, and checking against them."""

import json
from importlib import resources
from typing import Any

import jsonschema
from referencing import Registry, Resource


def load_schema(name: str) -> dict[str, Any]:
    """The JSON schema `name`: bars, bench, common or demo."""
    schema: dict[str, Any] = json.loads(
        (resources.files("vicinal.labs.bench.schema") / f"{name}.json").read_text()
    )
    return schema


def validate(values: object, name: str) -> None:
    """Check data against the schema `name`; raises jsonschema.ValidationError."""
    common: Resource[Any] = Resource.from_contents(load_schema("common"))
    registry: Registry[Any] = Registry().with_resource("common.json", common)
    jsonschema.Draft202012Validator(load_schema(name), registry=registry).validate(values)
