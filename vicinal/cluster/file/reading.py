"""Reading a cluster file: YAML, checked against its schema; errors say in which line.

cluster = read_cluster(Path("cluster.yaml"))
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.cluster.file.model import (
    BackEnd,
    Cluster,
    Mount,
    Node,
    Placement,
    Policy,
    RegionSettings,
)
from vicinal.errors import VicinalError, describe_os_error
from vicinal.host.topology import parse_cpu_list
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES
from vicinal.region.sizes import parse_size

if TYPE_CHECKING:
    from jsonschema import ValidationError

SCHEMA = Path(__file__).with_name("schema.json")
"""The file's JSON schema, for editors too."""

MOST_NODES = 1024


def read_cluster(path: Path) -> Cluster:
    """The cluster that a file describes. Raises VicinalError with file, line and remedy."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else "it is not text"
        raise VicinalError(
            f"the cluster file {path} could not be read ({why})", "name another with --file"
        ) from error
    values = _load(path, text)
    for fault in _schema_errors(values):
        place = list(fault.absolute_path)
        raise VicinalError(
            f"{_where(path, values, place, fault)}: {_complaint(fault, place)}", _remedy(fault)
        )
    return _build(path, values)


@cache
def load_schema() -> Mapping[str, Any]:
    """The schema as data."""
    schema: Mapping[str, Any] = json.loads(SCHEMA.read_text())
    return schema


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


def _schema_errors(values: Any) -> "Iterator[ValidationError]":
    """What is wrong, the deepest first: there it is said best."""
    import jsonschema

    found = jsonschema.Draft202012Validator(load_schema()).iter_errors(values)
    yield from sorted(found, key=lambda error: -len(error.absolute_path))


def _where(path: Path, values: Any, place: Sequence[str | int], error: "ValidationError") -> str:
    """File and line of a place in the file, as compilers write it."""
    line = None
    container = values
    steps = [*place]
    if error.validator == "additionalProperties" and (unknown := _unknown_keys(error)):
        steps.append(unknown[0])
    for step in steps:
        marks = getattr(container, "lc", None)
        if marks is None:
            break
        line = (marks.key(step) if isinstance(step, str) else marks.item(step))[0] + 1
        container = container[step]
    if line is None and (marks := getattr(values, "lc", None)) is not None:
        line = marks.line + 1
    return f"{path}:{line}" if line is not None else str(path)


def _complaint(error: "ValidationError", place: Sequence[str | int]) -> str:
    name = _name(place)
    asked: Any = error.validator_value
    found: Any = error.instance
    match error.validator:
        case "additionalProperties":
            unknown = ", ".join(_unknown_keys(error))
            return f"unknown key {unknown}" + (f" in {name}" if name else "")
        case "required":
            missing = [key for key in asked if key not in found]
            return f"{name or 'the file'} has no {missing[0]}"
        case "type" if not place:
            return "it is not a cluster file, which has keys and values"
        case "enum":
            return f"{name} cannot be {found!r}"
    return f"{name} cannot be {json.dumps(found, default=str)[:60]}"


def _remedy(error: "ValidationError") -> str:
    schema: Any = error.schema
    asked: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = sorted(schema["properties"])
            close = difflib.get_close_matches(_unknown_keys(error)[0], known, n=1)
            return f"did you mean {close[0]}?" if close else f"use {', '.join(known)}"
        case "required":
            return "add it"
        case "enum":
            return f"choose {' or '.join(map(str, asked))}"
        case "minimum" | "maximum" | "minItems":
            bound = {"minimum": "at least", "maximum": "at most", "minItems": "at least"}
            return f"give {bound[str(error.validator)]} {asked}"
    return str(schema.get("description", "see docs/clusters.md")).rstrip(".")


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


def _build(path: Path, values: Any) -> Cluster:
    placement = values.get("placement") or {"policy": Policy.NONE}
    region = values.get("region") or {}
    cluster = Cluster(
        name=str(values["name"]),
        nodes=tuple(_nodes(path, values["nodes"])),
        placement=Placement(Policy(placement["policy"]), int(placement.get("reserve", 0))),
        region=RegionSettings(
            members=int(region.get("members", DEFAULT_MEMBERS)),
            section_bytes=_bytes(region.get("section"), DEFAULT_SECTION_BYTES),
            heap_bytes=_bytes(region.get("heap"), 0),
        ),
        file=path,
    )
    _check_names(path, cluster)
    _check_pins(path, cluster)
    return cluster


def _nodes(path: Path, groups: Sequence[Mapping[str, Any]]) -> Iterator[Node]:
    for index, group in enumerate(groups):
        count = int(group.get("count", 1))
        pins = [parse_cpu_list(text) for text in group.get("pin", [])]
        if pins and len(pins) != count:
            raise VicinalError(
                f"{path}: nodes[{index}] has {count} nodes, and pin names processors for "
                f"{len(pins)}",
                "give one list for each node",
            )
        for number in range(count):
            memory = group.get("memory")
            yield Node(
                name=f"{group['name']}{number}" if count > 1 else str(group["name"]),
                backend=BackEnd(group.get("backend", BackEnd.CONTAINER)),
                runtime=group.get("runtime"),
                cpus=len(pins[number]) if pins else int(group.get("cpus", 1)),
                pin=pins[number] if pins else (),
                memory_bytes=None if memory is None else _bytes(memory, 0),
                mounts=tuple(_mount(path, text) for text in group.get("mounts", [])),
            )


def _mount(path: Path, text: str) -> Mount:
    """SOURCE[:DESTINATION][:ro]; a relative source begins at the file's directory."""
    given, _, destination = text.removesuffix(":ro").partition(":")
    source = str((path.parent / given).resolve())
    return Mount(source, destination or source, read_only=text.endswith(":ro"))


def _bytes(value: str | int | None, default: int) -> int:
    return default if value is None else parse_size(str(value))


def _check_names(path: Path, cluster: Cluster) -> None:
    names = [node.name for node in cluster.nodes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise VicinalError(
            f"{path}: two nodes would have the name {twice[0]}", "give their groups other names"
        )
    if len(names) > MOST_NODES:
        raise VicinalError(
            f"{path}: it has {len(names)} nodes", f"a cluster can have {MOST_NODES} at most"
        )


def _check_pins(path: Path, cluster: Cluster) -> None:
    explicit = cluster.placement.policy is Policy.EXPLICIT
    for node in cluster.nodes:
        if explicit and not node.pin:
            raise VicinalError(
                f"{path}: the placement is explicit, and {node.name} has no pin",
                "give it one, or choose another policy",
            )
        if node.pin and not explicit:
            raise VicinalError(
                f"{path}: {node.name} has a pin, and the placement is "
                f"{cluster.placement.policy.value}",
                "leave out the pin, or choose the policy explicit",
            )
