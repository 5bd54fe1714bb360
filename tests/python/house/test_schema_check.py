"""The quick check against a schema, compared with the library that it replaces."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from command_support import CHECKOUT
from jsonschema import Draft202012Validator

from vicinal.base.schema_check import surely_fits
from vicinal.base.yaml import Form, load
from vicinal.cluster.file.reading import FORM as CLUSTER
from vicinal.labs.study.file.reading import FORM as STUDY
from vicinal.labs.study.file.reading_environments import FORM as ENVIRONMENTS
from vicinal.labs.study.file.reading_environments import plain
from vicinal.labs.study.file.shipped import STUDIES, study_file

FILES = [
    *((CLUSTER, path) for path in sorted((CHECKOUT / "examples").glob("*.yaml"))),
    *((STUDY, study_file(name)) for name in ("aa", "quick", "p3-fig4")),
    (ENVIRONMENTS, STUDIES / "environments" / "p1.yaml"),
    pytest.param(ENVIRONMENTS, STUDIES / "environments" / "p2.yaml", marks=pytest.mark.long),
]
ODD: list[Any] = [None, True, False, 0, -1, 1.0, 0.5, 10**12, float("nan"), "", "none", "?!"]
ODD += [[], {}, [1, 1]]
"""Values that only a few keys of a file accept."""


def positions(values: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in the values, with each of its keys."""
    for key, value in list(values.items() if isinstance(values, dict) else enumerate(values)):
        yield values, key
        if isinstance(value, dict | list):
            yield from positions(value)


@pytest.mark.parametrize(("form", "path"), FILES, ids=lambda each: getattr(each, "stem", ""))
def test_what_surely_fits_does(form: Form, path: Path) -> None:
    """The quick check accepts files as they are, and accepts no file that the library rejects."""
    values = plain(load(form, path, path.read_text()))
    assert surely_fits(form.schema, values)
    library = Draft202012Validator(form.schema)
    changed = deepcopy(values)
    told = set()
    for container, key in positions(changed):
        kept = container[key]
        for odd in ODD:
            container[key] = odd
            fits = surely_fits(form.schema, changed)
            assert not fits or library.is_valid(changed), (key, odd)
            told.add(fits)
        container[key] = kept
        if isinstance(container, dict):
            del container[key]
            assert not surely_fits(form.schema, changed) or library.is_valid(changed), key
            container[key] = kept
            container["nobody knows it"] = 1
            assert not surely_fits(form.schema, changed) or library.is_valid(changed), key
            del container["nobody knows it"]
    assert told == {True, False}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "integer"}, True, False),
        ({"type": "number"}, True, False),
        ({"enum": [1, "one"]}, "one", True),
        ({"enum": [1, "one"]}, True, False),
        ({"minimum": 1}, float("nan"), False),
        ({"minimum": 1}, "zero", True),
        ({"exclusiveMinimum": 0}, 0, False),
        ({"exclusiveMaximum": 1}, 1, False),
        ({"maxItems": 1}, [1, 2], False),
        ({"uniqueItems": True}, ["one", "one"], False),
        ({"uniqueItems": True}, ["one", "two"], True),
        ({"uniqueItems": False}, ["one", "one"], True),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"A": 1}, False),
        ({"minProperties": 1}, {}, False),
        ({"properties": {"a": False}}, {"a": 1}, False),
        ({"$ref": "#/$defs/one", "$defs": {"one": {"type": "null"}}}, None, True),
        ({"$ref": "#/$defs/one", "$defs": {"one": {"type": "null"}}}, 1, False),
        ({"$ref": "other.json"}, 1, False),
        ({"a keyword of tomorrow": True}, 1, False),
        ({"anyOf": [{"type": "null"}, {"minimum": 2}]}, None, True),
        ({"anyOf": [{"type": "null"}, {"minimum": 2}]}, 1, False),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "string"}}, [None, "one"], True),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "string"}}, [None, 1], False),
        ({"prefixItems": [{"type": "null"}]}, [1], False),
        ({"prefixItems": [{"type": "null"}]}, [], True),
        ({"minLength": 1}, "", False),
        ({"minLength": 1, "format": "date-time"}, "no date", True),
    ],
    ids=json.dumps,
)
def test_keywords(schema: dict[str, Any], value: Any, fits: bool) -> None:
    assert surely_fits(schema, value) is fits


@pytest.mark.parametrize("form", [CLUSTER, STUDY, ENVIRONMENTS], ids=lambda form: form.kind)
def test_the_quick_check_knows_each_keyword_of_the_schemas(form: Form) -> None:
    """If a schema used another keyword, each file of that kind would load the library."""
    for schema in schemas(form.schema):
        text = json.dumps(schema)
        assert not {"oneOf", "allOf", "not", "if", "const", "format"} & set(schema), text


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all its parts."""
    if isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            parts = value.values() if key in ("properties", "$defs") else [value]
            for part in parts:
                yield from schemas(part)
