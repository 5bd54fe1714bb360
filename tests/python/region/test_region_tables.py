"""Tables of a region in which most lines are unused."""

from pathlib import Path

from written_region import WrittenRegion

from vicinal.region import inspect


def test_unused_lines_of_tables_are_not_read(region_path: Path) -> None:
    """Lines keep their numbers; a line of zeros is none."""
    region = WrittenRegion(region_path, members=200)
    region.join(3, rank=3)
    region.connect(3, 199, messages=1)
    region.beyond(3, 100, messages=8)
    state = inspect(region_path, patience=0)
    assert [(each.receiver, each.messages) for each in state.connections] == [(199, 1)]
    assert [each.messages for each in state.beyond] == [8]


def test_what_members_say_about_sleep_and_ends_is_read(region_path: Path) -> None:
    region = WrittenRegion(region_path)
    region.join(0, rank=0, sleeping=17, heartbeat=5)
    region.join(1, rank=1)
    region.connect(0, 1, ended=1)
    state = inspect(region_path, patience=0)
    assert [(each.sleeping, each.heartbeat) for each in state.members] == [(17, 5), (0, 0)]
    assert [each.ended for each in state.connections] == [1]
