"""docs/reference/region-format.md matches the headers: fields, offsets, sizes, constants, kinds."""

import re
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT

PAGE = (CHECKOUT / "docs/reference/region-format.md").read_text()
HEADERS = "".join(
    (CHECKOUT / "provider" / name).read_text() for name in ("region/layout.h", "proto/wire.h")
)

SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
FIELD_ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (\d+) \|", re.MULTILINE)
ERROR_ROW = re.compile(r"^\| `(WIRE_\w+)` \| \d+ \| [\w ]+ \| error, (\d+) bytes \|", re.MULTILINE)
CONSTANT_ROW = re.compile(r"^\| `([A-Z_]+)` \| (0x[0-9a-f]+|\d+) \|", re.MULTILINE)

STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\t(?:struct )?\w+ (\w+)(?:\[[^]]*\])?;", re.MULTILINE)
ENUMERATOR = re.compile(r"^\t((?:WIRE|SLOT|LIVENESS|CONNECTION)_\w+) = \d+,", re.MULTILINE)

DOCUMENTED = {
    struct: {field: (int(offset), int(size)) for offset, field, size in FIELD_ROW.findall(body)}
    for struct, body in SECTION.findall(PAGE)
}
CONSTANTS = {name: int(value, 0) for name, value in CONSTANT_ROW.findall(PAGE)}
ERRORS = {
    f"wire_shape(control_word({kind}, 0, 0)).payload": int(size)
    for kind, size in ERROR_ROW.findall(PAGE)
}
"""Payloads that are an error: the bytes that a frame carries, and the bytes that the page gives."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The C compiler's values of everything that the page names."""
    expressions = [*CONSTANTS, *ERRORS]
    for struct, fields in DOCUMENTED.items():
        for field in fields:
            expressions.append(f"offsetof(struct {struct}, {field})")
            expressions.append(f"sizeof(((struct {struct} *)0)->{field})")
    prints = "\n".join(
        f'printf("%llu\\n", (unsigned long long)({expression}));' for expression in expressions
    )
    directory: Path = tmp_path_factory.mktemp("documented")
    source = directory / "documented.c"
    source.write_text(
        '#include <stdio.h>\n#include "region/layout.h"\n#include "proto/wire.h"\n'
        f"int main(void) {{\n{prints}\n}}\n"
    )
    program = directory / "documented"
    options = ["-std=c11", "-D_GNU_SOURCE", f"-I{CHECKOUT / 'provider'}"]
    sources = [source, CHECKOUT / "provider/proto/wire.c"]
    subprocess.run(["cc", *options, *sources, "-o", program], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, output.split()), strict=True))


def test_every_struct_is_described() -> None:
    assert set(DOCUMENTED) == {name for name, _ in STRUCT.findall(HEADERS)}


@pytest.mark.parametrize(("struct", "body"), STRUCT.findall(HEADERS))
def test_every_field_is_described(struct: str, body: str) -> None:
    fields = {name for name in FIELD.findall(body) if not name.startswith("reserved")}
    assert fields == set(DOCUMENTED[struct])


@pytest.mark.parametrize("struct", DOCUMENTED)
def test_fields_lie_where_the_page_says(compiled: dict[str, int], struct: str) -> None:
    for field, expected in DOCUMENTED[struct].items():
        offset = compiled[f"offsetof(struct {struct}, {field})"]
        size = compiled[f"sizeof(((struct {struct} *)0)->{field})"]
        assert (offset, size) == expected, field


def test_constants_are_what_the_page_says(compiled: dict[str, int]) -> None:
    assert {name: compiled[name] for name in CONSTANTS} == CONSTANTS


def test_an_error_takes_the_bytes_that_the_page_says(compiled: dict[str, int]) -> None:
    assert len(ERRORS) == 2, "DONE and ENDED"
    assert {payload: compiled[payload] for payload in ERRORS} == ERRORS


def test_every_kind_flag_and_state_is_described() -> None:
    listed = set(ENUMERATOR.findall(HEADERS))
    assert {"WIRE_INLINE", "SLOT_JOINED", "LIVENESS_LOCK"} <= listed
    assert listed <= set(CONSTANTS)
