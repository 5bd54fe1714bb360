"""The model and the C code have the same states, and the same tables of allowed steps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROVIDER = ROOT / "provider"
MODEL = (Path(__file__).parent / "states.pml").read_text()

LEFT_OUT = {
    "FRAME_LEAVE": "a closed endpoint is like one that died, except that its last messages arrive",
    "FRAME_LEFT": "see FRAME_LEAVE",
    "FRAME_PING": "is_proved() of the model",
    "FRAME_PONG": "is_proved() of the model",
    "FRAME_TAKEN": "the window bounds how much arrives, not what: the model's network is bounded",
    "ROUTE_RETURN": "like ROUTE_REGION in the code; in the model a member that left may come back",
}
"""Names of the code that the model leaves out, and why."""

ENUMS = {
    "peer_state": "transport/transport.h",
    "peer_failover": "transport/transport.h",
    "detach_progress": "transport/network_transport.h",
    "region_step": "transport/network_detach.c",
    "requested_route": "region/layout.h",
    "frame_kind": "transport/network_frame.h",
}


def enum_of_code(name: str) -> dict[str, int]:
    """The names of an enum, with their values."""
    text = re.sub(r"/\*.*?\*/", "", (PROVIDER / ENUMS[name]).read_text(), flags=re.DOTALL)
    body = re.search(rf"enum {name} \{{(.*?)\}}", text, re.DOTALL)
    assert body, name
    values: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in body[1].split(","))):
        word, _, value = (part.strip() for part in entry.partition("="))
        values[word] = int(value) if value else max(values.values(), default=-1) + 1
    return values


def enum_of_model(name: str) -> dict[str, int]:
    """The definitions after the comment that names the enum."""
    body = re.search(rf"/\* enum {name}\b.*?\*/\n((?:#define .*\n)+)", MODEL)
    assert body, name
    return {word: int(value) for word, value in re.findall(r"#define (\w+) (\d+)", body[1])}


def table_of_code(name: str) -> set[tuple[str, str]]:
    """The allowed steps, as pairs of states."""
    text = (PROVIDER / "transport/states.c").read_text()
    body = re.search(rf"{name}_follows\[[^=]*= \{{(.*?)\}};", text, re.DOTALL)
    assert body, name
    return set(re.findall(r"\[(\w+)\]\[(\w+)\] = true", body[1]))


def table_of_model(name: str) -> set[tuple[str, str]]:
    """The allowed steps in the model."""
    body = re.search(rf"#define {name.upper()}_FOLLOWS\(from, to\) \((.*?)\n\n", MODEL, re.DOTALL)
    assert body, name
    return set(re.findall(r"\(from\) == (\w+) && \(to\) == (\w+)", body[1]))


@pytest.mark.parametrize("name", ENUMS)
def test_the_model_has_the_states_of_the_code(name: str) -> None:
    code = {word: value for word, value in enum_of_code(name).items() if word not in LEFT_OUT}
    assert enum_of_model(name) == code


def test_nothing_is_left_out_that_the_model_has_or_nobody_has() -> None:
    names = {word for name in ENUMS for word in enum_of_code(name)}
    assert LEFT_OUT.keys() <= names
    assert not [word for word in LEFT_OUT if re.search(rf"#define {word}\b", MODEL)]


@pytest.mark.parametrize("name", ["peer_state", "peer_failover"])
def test_the_same_may_follow_in_both(name: str) -> None:
    assert table_of_code(name)
    assert table_of_model(name) == table_of_code(name)


def test_each_step_of_the_code_asks_the_table() -> None:
    """Except for peers that were just met."""
    written = {
        (path.name, match[1])
        for path in (PROVIDER / "transport").glob("*.c")
        for match in re.finditer(
            r"(\w+)->(?:state|failover) = [^=;]*(?:PEER|FAILOVER)_", path.read_text()
        )
    }
    assert written == {
        ("region_transport.c", "peer"),  # transport_reset_peer()
        ("network_peers.c", "peer"),  # network_meet()
        ("network_switch.c", "rest"),  # network_retire()
    }
