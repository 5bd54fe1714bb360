"""Files that people write in YAML, checked against a JSON schema; errors say in which line.

FORM = Form("cluster file", Path("schema.json"), "docs/clusters.md", "begin with an example")
values = load(FORM, path, text)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import VicinalError, describe_os_error
from vicinal.schema_check import surely_fits
from vicinal.wording import nearest

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError


@dataclass(frozen=True)
class Form:
    """What files of a kind have in them."""

    kind: str
    """What messages call such a file: `cluster file`."""
    file: Path
    """The JSON schema, for editors too."""
    documentation: str
    begin: str
    """What to do where a file is none of this kind."""

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The schema as data."""
        schema: Mapping[str, Any] = json.loads(self.file.read_text())
        return schema

    @cached_property
    def validator(self) -> "Draft202012Validator":
        """What sees whether values fit the schema."""
        from jsonschema import Draft202012Validator

        return Draft202012Validator(self.schema)


def read_text(form: Form, path: Path) -> str:
    """What a file has in it. Raises VicinalError where that is nothing that can be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else "it is not text"
        raise VicinalError(
            f"the {form.kind} {path} could not be read ({why})", "name another"
        ) from error


def load(form: Form, path: Path, text: str) -> Any:
    """The values of a file's text, which know their lines.

    Raises VicinalError, with file, line and remedy, where it is no YAML or does not fit the schema.
    """
    values = _load(path, text)
    check(form, path, values)
    return values


def check(form: Form, path: Path, values: Any) -> None:
    """Raise VicinalError, with the line if the values know theirs, where they do not fit."""
    for fault in _faults(form, values):
        place = list(fault.absolute_path)
        raise VicinalError(
            f"{_where(path, values, place, fault)}: {_complaint(form, fault, place)}",
            _remedy(form, fault),
        )


def line_of(path: Path, values: Any, key: str | int) -> str:
    """File and line of a key, or of an item of a list; the file alone where no line is known."""
    marks = getattr(values, "lc", None)
    if marks is None:
        return str(path)
    return f"{path}:{(marks.key(key) if isinstance(key, str) else marks.item(key))[0] + 1}"


def _load(path: Path, text: str) -> Any:
    # Loaded here, as the schema's library is: other commands do not wait for them.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        why = (error.problem or "it cannot be read").splitlines()[0]
        raise VicinalError(f"{path}{line}: {why}", "mend the YAML there") from error
    except YAMLError as error:
        why = str(error).splitlines()[0]
        raise VicinalError(f"{path}: {why}", "see that it is YAML") from error


def _faults(form: Form, values: Any) -> "Iterator[ValidationError]":
    """What is wrong, the deepest first: there it is said best."""
    if surely_fits(form.schema, values):
        return
    found = form.validator.iter_errors(values)
    yield from sorted(found, key=lambda error: -len(error.absolute_path))


def _where(path: Path, values: Any, place: Sequence[str | int], error: "ValidationError") -> str:
    """File and line of a place in the file, as compilers write it."""
    line = None
    container = values
    steps = [*place]
    if error.validator == "additionalProperties" and (unknown := _unknown_keys(error)):
        steps.append(unknown[0])
    for step in steps:
        # Parts that were read from a file may be in a whole that was not.
        if (marks := getattr(container, "lc", None)) is not None:
            with suppress(KeyError):  # of a key that was added to them
                line = (marks.key(step) if isinstance(step, str) else marks.item(step))[0] + 1
        container = container[step]
    if line is None and (marks := getattr(values, "lc", None)) is not None:
        line = marks.line + 1
    return f"{path}:{line}" if line is not None else str(path)


def _complaint(form: Form, error: "ValidationError", place: Sequence[str | int]) -> str:
    name = _name(place)
    asked: Any = error.validator_value
    found: Any = error.instance
    match error.validator:
        case "additionalProperties":
            unknown = ", ".join(map(str, _unknown_keys(error)))
            return f"unknown key {unknown}" + (f" in {name}" if name else "")
        case "required":
            missing = [key for key in asked if key not in found]
            return f"{name or 'the file'} has no {missing[0]}"
        case "type" if not place:
            return f"it is not a {form.kind}, which has keys and values"
        case "enum":
            return f"{name} cannot be {found!r}"
    return f"{name} cannot be {json.dumps(found, default=str)[:60]}"


def _remedy(form: Form, error: "ValidationError") -> str:
    schema: Any = error.schema
    asked: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            return nearest(str(_unknown_keys(error)[0]), schema["properties"])
        case "required":
            return "add it"
        case "type" if not error.absolute_path:
            return form.begin
        case "type" if asked == "array":
            return "write a list: [...], or a line with a hyphen for each"
        case "enum":
            return f"choose {' or '.join(map(str, asked))}"
        case "minimum" | "maximum" | "minItems":
            bound = {"minimum": "at least", "maximum": "at most", "minItems": "at least"}
            return f"give {bound[str(error.validator)]} {asked}"
    return str(schema.get("description", f"see {form.documentation}")).rstrip(".")


def _unknown_keys(error: "ValidationError") -> list[str]:
    schema: Any = error.schema
    found: Any = error.instance
    return [key for key in found if key not in schema["properties"]]


def _name(place: Sequence[str | int]) -> str:
    """A place in the file, as in `nodes[0].cpus`."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
