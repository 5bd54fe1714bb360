"""YAML files of users, checked against a JSON schema; errors name the line.

FORM = Form(
    "cluster file", Path("schema.json"), "docs/reference/cluster-file.md", "begin with an example"
) values = load(FORM, path, text)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.faults import FAULTY, Faults
from vicinal.base.schema_check import surely_fits
from vicinal.base.schema_faults import Fault, faults_of
from vicinal.base.wording import in_quotes

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a valid date",
}
"""The expected kind of a value, by YAML's name of the kind."""


@dataclass(frozen=True)
class Form:
    """A kind of file: its schema, its documentation and its name in messages."""

    kind: str
    """The name of such a file in messages: `cluster file`."""
    file: Path
    """The JSON schema, which editors use too."""
    documentation: str
    begin: str
    """The remedy for a file of another kind."""
    keys: tuple[str, ...] = ()
    """The keys of the schema in such a file, of which the first is required; empty: all keys."""

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The schema as data."""
        schema: Mapping[str, Any] = json.loads(self.file.read_text())
        if not self.keys:
            return schema
        properties = {key: schema["properties"][key] for key in self.keys}
        return {**schema, "properties": properties, "required": [self.keys[0]]}

    @cached_property
    def validator(self) -> "Draft202012Validator":
        """A validator of the jsonschema library for the schema."""
        from jsonschema import Draft202012Validator

        return Draft202012Validator(self.schema)


def read_text(form: Form, path: Path) -> str:
    """Return the text of a file. Raises VicinalError if the file cannot be read or is not text."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else "the file is not text"
        raise VicinalError(
            f"the {form.kind} {path} could not be read ({why})", "name another file"
        ) from error


def load(form: Form, path: Path, text: str) -> Any:
    """Return the values of a file's text; the values know their lines.

    Raises VicinalError with file, line and remedy if the text is not YAML or does not fit the
    schema.
    """
    faults = Faults()
    values = load_parts(form, path, text, faults)
    faults.check()
    return values


def load_parts(form: Form, path: Path, text: str, faults: Faults) -> Any:
    """Return the values as load() does, but collect schema errors in `faults`.

    FAULTY replaces each wrong part. Raises VicinalError if the text is not YAML.
    """
    values = _load(path, text)
    mark_faults(form, path, values, faults)
    return values


def to_text(values: Any) -> str:
    """Values that `load` gave, and that were changed since, as YAML, with the file's comments."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = None
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = StringIO()
    yaml.dump(values, stream)
    return stream.getvalue()


def mark_faults(form: Form, path: Path, values: Any, faults: Faults) -> None:
    """Collect the parts of `values` that do not fit the schema, with their lines if known; replace
    each by FAULTY.

    Raises VicinalError if `values` as a whole is not of this kind.
    """
    if surely_fits(form.schema, values):
        return
    found = [
        fault
        for error in form.validator.iter_errors(values)
        for fault in faults_of(error, form.kind, form.begin)
    ]
    meant = {fault.meant for fault in found}
    told = [
        (_line(values, fault), fault)
        for fault in found
        if not (fault.missing and fault.position in meant)  # the key is there, misspelt
    ]
    told.sort(key=lambda each: each[0] or 0)
    errors = [VicinalError(f"{_at(path, line)}: {f.message}", f.remedy) for line, f in told]
    if any(not fault.position for fault in found):
        raise errors[0]
    faults.extend(errors)
    # The deepest part first, because the parts around it may be wrong, too.
    for fault in sorted(found, key=lambda each: -len(each.position)):
        container = values
        for step in fault.position[:-1]:
            container = container[step]
        if fault.unknown:
            container.pop(fault.position[-1], None)
        else:
            container[fault.position[-1]] = FAULTY


def line_of(path: Path, values: Any, key: str | int) -> str:
    """File and line of a key or of a list's item; only the file if no line is known."""
    line = _line_of_step(values, key)
    if line is None and (marks := getattr(values, "lc", None)) is not None:
        line = marks.line + 1  # the key is missing: the line of the part around it
    return _at(path, line)


def _load(path: Path, text: str) -> Any:
    # Imported here, like the schema's library, so that other commands do not wait for the import.
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import ConstructorError, RoundTripConstructor
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    class Constructor(RoundTripConstructor):
        """The library's constructor, with errors for values that Python rejects, such as
        `2026-02-30`."""

        def construct_non_recursive_object(self, node: Any, tag: str | None = None) -> Any:
            try:
                return super().construct_non_recursive_object(node, tag=tag)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                kind = str(tag or node.tag).rpartition(":")[2]
                value = in_quotes(node.value)
                why = f"{value} is not {_KINDS.get(kind, f'a valid {kind}')}"
                raise ConstructorError(None, None, why, node.start_mark) from error

    yaml = YAML(typ="rt", pure=True)
    yaml.Constructor = Constructor
    try:
        values = yaml.load(text)
        _refuse_odd_parts(path, values)
        return values
    except RecursionError as error:
        raise VicinalError(
            f"{path}: the parts are nested too deeply", "check that this is the right file"
        ) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        why = (error.problem or "the YAML is malformed").splitlines()[0]
        raise VicinalError(f"{path}{line}: {why}", "correct the YAML there") from error
    except YAMLError as error:
        why = str(error).splitlines()[0]
        raise VicinalError(f"{path}: {why}", "check that the file is YAML") from error


def _refuse_odd_parts(path: Path, values: Any) -> None:
    """Raise VicinalError for YAML that no reader of values can handle.

    That is a part that contains itself by an alias, and text that no file name can contain.
    """
    whole: set[int] = set()  # parts that are checked already
    around: list[int] = []  # parts that contain the next part; None in `left` ends the last of them
    left: list[tuple[Any, int | None] | None] = [(values, None)]
    while left:
        if (taken := left.pop()) is None:
            whole.add(around.pop())
            continue
        part, line = taken
        if isinstance(part, str):
            if "\0" in part or (not part.isascii() and _has_surrogate(part)):
                raise VicinalError(
                    f"{_at(path, line)}: {in_quotes(part)} has a character that no name can have",
                    "remove the character",
                )
        elif isinstance(part, Mapping | list) and id(part) not in whole:
            if id(part) in around:
                raise VicinalError(
                    f"{_at(path, line)}: a part of the file contains itself", "remove the alias"
                )
            around.append(id(part))
            left.append(None)
            steps = enumerate(part) if isinstance(part, list) else part.items()
            for step, inner in list(steps):
                at = _line_of_step(part, step) or line
                left.append((inner, at))
                left.append((step, at))


def _has_surrogate(text: str) -> bool:
    """Whether text contains half of a surrogate pair, such as `"\\ud800"`."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _line(values: Any, fault: Fault) -> int | None:
    """The line of a fault's position, or of the part around it; None if no line is known."""
    marks = getattr(values, "lc", None)
    line = None if marks is None else marks.line + 1
    container = values
    for step in fault.position[:-1] if fault.missing else fault.position:
        line = _line_of_step(container, step) or line
        container = container[step]
    return line


def _line_of_step(container: Any, step: str | int) -> int | None:
    """The line of a key or an item.

    None for a part that was not read from a file, and for a key that was added later.
    """
    marks = getattr(container, "lc", None)
    if marks is None:
        return None
    try:
        mark = marks.key(step) if isinstance(step, str) else marks.item(step)
    except (KeyError, IndexError):
        return None
    return None if mark is None else int(mark[0]) + 1


def _at(path: Path, line: int | None) -> str:
    """File and line in the notation of compilers."""
    return str(path) if line is None else f"{path}:{line}"
