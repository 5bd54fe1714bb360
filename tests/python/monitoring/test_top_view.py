"""What `vicinal top` shows on a screen of any size, and what its keys do."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from written_region import WrittenRegion

from vicinal.monitoring.live import Screen, keys_of
from vicinal.monitoring.sampling import Change, Sample, Sampler, change_between
from vicinal.monitoring.showing import Order, Shown, show_bytes, show_number, whole_view

HEIGHT = 24
WIDTH = 80


@pytest.fixture
def jobs(region_path: Path) -> Shown:
    """Forty jobs of one region; job 40 sends most."""
    region = WrittenRegion(region_path, members=40, label="[/red]a program with a long name")
    for slot in range(40):
        region.join(slot, rank=0, job=slot + 1)
        region.connect(slot, slot, messages=1, bytes=1)
    reader = Sampler(lambda: [region_path])
    before = reader.take()
    for slot in range(40):
        region.connect(slot, slot, messages=1 + slot, bytes=1 + (slot << 30))
    region.condemn(4)
    now = reader.take()
    return Shown(now, change_between(replace(before, monotonic=now.monotonic - 1), now))


def lines(shown: Shown, screen: Screen, width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    output = io.StringIO()
    console = Console(width=width, file=output, no_color=True)
    console.print(screen.view(shown, height, 1.0))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_screen_of_80_columns_shows_all_figures_of_a_job(jobs: Shown) -> None:
    shown = lines(jobs, Screen())
    assert len(shown) == HEIGHT
    assert max(map(len, shown)) <= WIDTH
    assert "40 jobs, 40 ranks, 1 region, 1 fault" in shown[0]
    assert shown[1].split() == [
        *("job", "ranks", "asleep", "msgs/s", "bytes/s", "coll/s", "1-sided/s", "arena", "faults")
    ]
    assert shown[2].startswith("> [/red]a prog")
    assert shown[2].split()[-8:] == ["1", "0", "39", "39.0", "GiB", "0", "0", "0%", "0"][-8:]


@pytest.mark.parametrize("width", [1, 20, 79, 300])
@pytest.mark.parametrize("height", [1, 2, 5, 100])
@pytest.mark.parametrize("detail", [False, True])
def test_each_size_of_a_screen_is_kept(jobs: Shown, width: int, height: int, detail: bool) -> None:
    screen = Screen(detail=detail, selected=jobs.jobs[-1].key, top=999)
    shown = lines(jobs, screen, width, height)
    assert len(shown) <= max(height, 4)  # summary, headings, a job, keys
    assert max(map(len, shown)) <= width or width < WIDTH // 2


def test_the_selected_job_stays_on_the_screen(jobs: Shown) -> None:
    screen = Screen()
    for _ in range(100):
        screen = screen.pressed("down", jobs)
    assert screen.selected == jobs.jobs[-1].key
    assert lines(jobs, screen)[-2].startswith("> ")
    for _ in range(100):
        screen = screen.pressed("k", jobs)
    assert lines(jobs, screen)[2].startswith("> ")


def test_s_sorts_by_the_next_figure(jobs: Shown) -> None:
    screen, seen = Screen(), []
    for _ in Order:
        seen.append(replace(jobs, order=screen.order).jobs[0].job)
        screen = screen.pressed("s", jobs)
    assert screen.order is Order.BYTES
    # bytes, messages, collectives and ranks (all alike: by number), faults, name
    assert seen == [40, 40, 1, 1, 5, 1]


def test_a_filter_is_typed_and_cleared(jobs: Shown) -> None:
    screen = Screen()
    for key in ("/", "n", "q", "erase", "o", "enter"):
        screen = screen.pressed(key, jobs)
    assert (screen.wanted, screen.typing, screen.ended) == ("no", False, False)
    assert len(replace(jobs, wanted="node0").jobs) == 40
    assert replace(jobs, wanted="node1").jobs == []
    assert "no job matches node1" in lines(replace(jobs, wanted="node1"), screen)[1]
    assert screen.pressed("escape", jobs).wanted == ""
    assert screen.pressed("q", jobs).ended


def test_one_job_is_shown_in_detail_and_scrolls(jobs: Shown) -> None:
    screen = Screen().pressed("enter", jobs)
    text = "\n".join(lines(jobs, screen))
    assert "[/red]a program with a long name, job 40" in text
    assert "1 unknown; 0 asleep; 1 of 40 slots free" in text
    assert "     0       0  region         40    39.0 GiB" in text
    scrolled = lines(jobs, screen.pressed("down", jobs), height=10)
    assert scrolled[1].startswith("region ")
    gone = replace(jobs, sample=Sample(0.0, (), (), ()))
    assert "the job has ended" in lines(gone, screen)[1]
    assert not screen.pressed("escape", jobs).detail


def test_what_could_not_be_read_is_shown() -> None:
    sample = Sample(0.0, (), (), ("cannot read region /x: permission denied: run as its owner",))
    shown = lines(Shown(sample, Change(0.0)), Screen())
    assert shown[1] == "no job runs through a region of this host now"
    assert shown[2].startswith("not shown: cannot read region /x: permission denied")
    assert "1 fault" in shown[0]


def test_a_stream_gets_everything(jobs: Shown) -> None:
    output = io.StringIO()
    Console(width=120, file=output).print(whole_view(jobs, None))
    assert output.getvalue().count("[/red]a program with a long name") == 40
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A", ["up"]),
        (b"\x1b[B\x1b[B", ["down", "down"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[15~", []),
        (b"ab\r", ["a", "b", "enter"]),
        (b"\xff\x00\xc3\xa4", ["\u00e4"]),
        (b"\x7f", ["erase"]),
    ],
)
def test_keys_of_a_terminal_are_named(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (0.4, "0"), (9999, "9,999"), (12345, "12.3K"), (2.5e6, "2.5M"), (1e30, ">999T")],
)
def test_numbers_are_short(number: float, shown: str) -> None:
    assert show_number(number) == shown


def test_sizes_are_short() -> None:
    assert show_bytes(1536) == "1.5 KiB"
    assert show_bytes(2.0**70) == "> 999 TiB"
