"""Files that are no region, or a damaged one: each gets one clear line."""

import os
import random
from pathlib import Path

import pytest
from command_support import Vicinal, error_line

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.region import format as layout

COMMANDS = ("show", "check")


def overwrite(path: Path, offset: int, value: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(size, "little"))


def test_a_new_region_is_sound(vicinal: Vicinal, region_path: Path) -> None:
    region.create(region_path)
    result = vicinal("region", "check", region_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "sound" in result.stdout


def test_names_of_regions_are_understood(vicinal: Vicinal, region_path: Path) -> None:
    made = region.create(region_path)
    assert vicinal("region", "check", made.name).returncode == 0
    assert "on the host" in error_line(vicinal("region", "check", "pci:0000:00:04.0"))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_file(vicinal: Vicinal, region_path: Path, command: str) -> None:
    assert "there is no region" in error_line(vicinal("region", command, region_path))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("path", ["/dev/shm", "/dev/null", "/dev/shm/vicinal-none/region"])
def test_no_regular_file(vicinal: Vicinal, command: str, path: str) -> None:
    error_line(vicinal("region", command, path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_not_waited_for(vicinal: Vicinal, tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    line = error_line(vicinal("region", command, tmp_path / "pipe"))
    assert "not a regular file" in line


@pytest.mark.parametrize("content", [b"", b"VICINAL1", bytes(4096), b"x" * 10000])
def test_no_region(region_path: Path, content: bytes) -> None:
    region_path.write_bytes(content)
    with pytest.raises(VicinalError, match="is not a region"):
        region.check(region_path)


@pytest.mark.parametrize(
    ("offset", "size", "value", "words"),
    [
        (0, 8, layout.MAGIC + 1, "is not a region"),
        (8, 4, layout.VERSION + 1, "format version 4, and this Vicinal knows version 3"),
        (8, 4, 0, "format version 0, and this Vicinal knows version 3"),
        (12, 4, 1, "2 to 512"),
        (12, 4, 1 << 31, "2 to 512"),
        (12, 4, 17, "contradicts itself"),
        (16, 8, 1 << 63, "contradicts itself"),
        (40, 8, 1 << 50, "256K to 1G"),
        (40, 8, 983041, "whole pages"),
        (48, 8, 0, "contradicts itself"),
    ],
)
def test_damaged_headers(region_path: Path, offset: int, size: int, value: int, words: str) -> None:
    region.create(region_path)
    overwrite(region_path, offset, value, size)
    with pytest.raises(VicinalError, match=words):
        region.check(region_path)


def test_a_time_beyond_every_calendar_is_shown(vicinal: Vicinal, region_path: Path) -> None:
    region.create(region_path)
    overwrite(region_path, 56, (1 << 64) - 1, 8)
    assert vicinal("region", "show", region_path).returncode == 0


def test_cut_short(vicinal: Vicinal, region_path: Path) -> None:
    made = region.create(region_path)
    os.truncate(region_path, made.region_bytes - 4096)
    assert "is truncated" in error_line(vicinal("region", "check", region_path))


def test_not_reserved(vicinal: Vicinal, region_path: Path) -> None:
    made = region.create(region_path)
    os.truncate(region_path, made.region_bytes // 2)
    os.truncate(region_path, made.region_bytes)
    assert "SIGBUS" in error_line(vicinal("region", "check", region_path))


def test_open_to_others(vicinal: Vicinal, region_path: Path) -> None:
    region.create(region_path)
    region_path.chmod(0o640)
    line = error_line(vicinal("region", "check", region_path))
    assert "mode 0640" in line
    assert "chmod 600" in line


def test_random_damage_never_surprises(region_path: Path) -> None:
    """Whatever the tables contain, the answer is a finding or a VicinalError."""
    members = 3
    made = region.create(region_path, members=members, section_bytes=layout.SECTION_MIN)
    sound = region_path.read_bytes()
    chance = random.Random(2026)
    tables = [(0, layout.sections_offset(members))] + [
        (layout.section_offset(slot, members, made.section_bytes), layout.arena_offset(members))
        for slot in range(members)
    ]
    states = bytearray(sound)
    for slot in range(members):
        states[layout.slot_offset(slot)] = layout.SlotState.JOINED
    answers = refusals = 0
    for _ in range(300):
        damaged = bytearray(states)
        for _ in range(chance.randint(1, 60)):
            start, length = chance.choice(tables)
            # Mostly damage words that are in use, so that the header is not always refused.
            offset = start + (chance.randrange(256) if start else chance.randrange(8, length))
            damaged[offset] = chance.choice((0, 1, 2, 0x7F, 0xFF, chance.randrange(256)))
        region_path.write_bytes(damaged)
        try:
            answers += len(region.check(region_path, patience=0))
        except VicinalError:
            refusals += 1
    assert answers > 0
    assert refusals > 0
