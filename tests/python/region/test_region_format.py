"""vicinal.region.format matches provider/region/layout.h, according to the C compiler."""

import subprocess
from pathlib import Path

import pytest

from vicinal.region import format as layout

RECORDS = {
    "region_header": layout.HEADER,
    "member_slot": layout.SLOT,
    "member_verdict": layout.VERDICT,
    "exposure_line": layout.EXPOSURE,
    "section_header": layout.SECTION,
    "credit_line": layout.CREDIT,
    "connection_line": layout.CONNECTION,
    "transfer_line": layout.TRANSFER,
    "network_line": layout.NETWORK_LINE,
}

CONSTANTS = {
    "REGION_MAGIC": layout.MAGIC,
    "REGION_VERSION": layout.VERSION,
    "REGION_PAGE": layout.PAGE,
    "REGION_LINE": layout.LINE,
    "REGION_MEMBERS_MIN": layout.MEMBERS_MIN,
    "REGION_MEMBERS_MAX": layout.MEMBERS_MAX,
    "REGION_SECTION_MIN": layout.SECTION_MIN,
    "REGION_SECTION_MAX": layout.SECTION_MAX,
    "REGION_HEAP_MAX": layout.HEAP_MAX,
    "RING_SLOTS_MIN": layout.RING_SLOTS_MIN,
    "RING_SLOTS_MAX": layout.RING_SLOTS_MAX,
    "REGION_TRANSFERS": layout.TRANSFERS,
    "REGION_NETWORK_LINES": layout.NETWORK_LINES,
    "REGION_EXPOSURES": layout.EXPOSURES,
    "SLOT_FREE": layout.SlotState.FREE,
    "SLOT_CLAIMED": layout.SlotState.CLAIMED,
    "SLOT_JOINED": layout.SlotState.JOINED,
    "SLOT_HELD": layout.SlotState.HELD,
    "LIVENESS_LOCK": layout.Liveness.LOCK,
    "LIVENESS_HEARTBEAT": layout.Liveness.HEARTBEAT,
    "CONNECTION_BY_REGION": layout.Route.REGION,
    "CONNECTION_SWITCHING": layout.Route.SWITCHING,
    "CONNECTION_BY_NETWORK": layout.Route.NETWORK,
    "CONNECTION_STAYS": layout.Route.STAYS,
    "CONNECTION_ENDED": layout.Route.ENDED,
}

MEMBER_COUNTS = (2, 3, 8, 15, 16, 17, 63, 64, 65, 511, 512)

OFFSETS = {
    "REGION_VERDICTS_OFFSET": layout.verdicts_offset,
    "REGION_SECTIONS_OFFSET": layout.sections_offset,
    "SECTION_CREDITS_OFFSET": layout.credits_offset,
    "SECTION_CONNECTIONS_OFFSET": layout.connections_offset,
    "SECTION_TRANSFERS_OFFSET": layout.transfers_offset,
    "SECTION_NETWORK_OFFSET": layout.network_offset,
    "SECTION_ARENA_OFFSET": layout.arena_offset,
}


@pytest.fixture(scope="module")
def compiled(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The value of every constant, size and offset in C."""
    expressions = [*CONSTANTS]
    for record, kind in RECORDS.items():
        expressions.append(f"sizeof(struct {record})")
        for field in kind.names or ():
            expressions.append(f"offsetof(struct {record}, {field})")
            expressions.append(f"sizeof(((struct {record} *)0)->{field})")
    expressions += [f"{macro}({count}U)" for macro in OFFSETS for count in MEMBER_COUNTS]
    prints = "\n".join(
        f'printf("%llu\\n", (unsigned long long)({expression}));' for expression in expressions
    )
    directory = tmp_path_factory.mktemp("layout")
    source = directory / "layout.c"
    source.write_text(
        f'#include <stdio.h>\n#include "region/layout.h"\nint main(void) {{\n{prints}\n}}\n'
    )
    program = directory / "layout"
    subprocess.run(
        ["cc", "-std=c11", f"-I{checkout / 'provider'}", source, "-o", program], check=True
    )
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, output.split()), strict=True))


def test_constants_are_the_same(compiled: dict[str, int]) -> None:
    assert {name: compiled[name] for name in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("record", RECORDS)
def test_fields_lie_at_the_same_offsets(compiled: dict[str, int], record: str) -> None:
    kind = RECORDS[record]
    assert compiled[f"sizeof(struct {record})"] == kind.itemsize
    assert kind.fields is not None
    for name, (field, offset, *_) in kind.fields.items():
        assert compiled[f"offsetof(struct {record}, {name})"] == offset, name
        assert compiled[f"sizeof(((struct {record} *)0)->{name})"] == field.itemsize, name


@pytest.mark.parametrize("macro", OFFSETS)
def test_tables_begin_at_the_same_offsets(compiled: dict[str, int], macro: str) -> None:
    ours = {count: OFFSETS[macro](count) for count in MEMBER_COUNTS}
    assert ours == {count: compiled[f"{macro}({count}U)"] for count in MEMBER_COUNTS}


def test_geometry_is_bounded() -> None:
    assert layout.section_fault(2, layout.SECTION_MIN) is None
    assert layout.section_fault(512, 960 * 1024) is None
    for members, section_bytes in (
        (1, layout.SECTION_MIN),
        (513, layout.SECTION_MIN),
        (2, layout.SECTION_MIN - 4096),
        (2, layout.SECTION_MAX + 4096),
        (2, layout.SECTION_MIN + 1),
    ):
        assert layout.section_fault(members, section_bytes), (members, section_bytes)
    assert layout.section_fault(2, layout.SECTION_MIN + layout.HEAP_MAX, layout.HEAP_MAX) is None
    for section_bytes, heap_bytes in (
        (layout.SECTION_MIN, layout.PAGE),
        (layout.SECTION_MIN, layout.SECTION_MIN),
        (layout.SECTION_MIN, layout.SECTION_MIN + layout.PAGE),
        (layout.SECTION_MIN + layout.PAGE, layout.PAGE + 1),
        (layout.SECTION_MIN - layout.PAGE, -layout.PAGE),
        (layout.SECTION_MIN + layout.HEAP_MAX + layout.PAGE, layout.HEAP_MAX + layout.PAGE),
    ):
        assert layout.section_fault(2, section_bytes, heap_bytes), (section_bytes, heap_bytes)
