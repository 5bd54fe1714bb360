"""The view of a running study, its estimates so far, and the end that they decide."""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from study_support import NATIVE, NETWORK, REGION, study

from vicinal.labs.study.file.model import Comparison, Design, Quantity, Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.running.estimates import Estimates, ended
from vicinal.labs.study.running.view import Lines, LiveView, Shown, view_for

LATENCY = Workload("latency", "latency", "record", "latency", Quantity.LATENCY, (8, 4096))
STUDY = study([LATENCY], [NETWORK, REGION])
SHOWN = Shown("latency in region", 2, 7, 11, 42, 200, 1, [["", "size", "region"], ["l", "8", "1"]])


def series(size: int, nanoseconds: float) -> Series:
    """A ping-pong's series: two messages in each sample."""
    return Series(size, 0, 2, np.full(10, nanoseconds, dtype=np.int64))


def estimates(blocks: int, ratio: Callable[[int], float]) -> Estimates:
    """Estimates for a region that takes `ratio` of the network's time, in each block."""
    found = Estimates(STUDY)
    for block in range(1, blocks + 1):
        base = 20_000 + 100 * block
        for name, factor in (("network", 1.0), ("region", ratio(block))):
            found.add(LATENCY, name, block, [series(8, base * factor)], [])
    return found


def test_the_live_view_is_drawn_before_each_launch_and_by_nothing_else() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    with LiveView(STUDY, console) as view:
        assert not view._live.auto_refresh
        view.show(SHOWN)
        text = written.getvalue()
        view.warn("failed: something")
    for words in (
        STUDY.title,
        "block 2 of 7, 11 of 42 trials, 1 failed, about 3 min left",
        "now: latency in region",
        "size",
    ):
        assert words in text
    assert "failed: something" in written.getvalue()


def test_lines_where_there_is_no_terminal() -> None:
    written = io.StringIO()
    view = view_for(STUDY, Console(file=written, width=60), quiet=False)
    assert isinstance(view, Lines)
    for _ in range(20):
        view.show(SHOWN)
    view.show(replace(SHOWN, block=3, seconds_left=4.2))
    view.say("[red]not markup[/red]")
    first, second, third = written.getvalue().splitlines()
    assert first.startswith("block 2 of 7")
    assert (
        second == "block 3 of 7, 11 of 42 trials, 1 failed, about 4 s left; now latency in region"
    )
    assert third == "[red]not markup[/red]"


def test_quiet_says_only_what_is_wrong() -> None:
    written = io.StringIO()
    view = view_for(STUDY, Console(file=written, force_terminal=True), quiet=True)
    view.show(SHOWN)
    view.say("making nodes")
    view.warn("failed: this")
    assert written.getvalue() == "failed: this\n"


def test_estimates() -> None:
    found = estimates(7, lambda _: 0.2)
    found.add(LATENCY, "region", 1, [], [Figure("time", 3.0, "us", size=4096)])
    heading, row, other = found.rows()
    assert heading == ["", "size", "network", "region"]
    # 20.4 µs is the median of seven blocks, and a message is half of it; the interval is their
    # range.
    assert row == ["latency, µs", "8", "10.2 [10.1, 10.3]", "2.04 [2.01, 2.07]"]
    assert other == ["latency, µs", "4K", "-", "3"]
    ours, theirs = found.pairs(("latency", 8), "region", "network")
    assert len(ours) == 7
    assert ours[0] / theirs[0] == pytest.approx(0.2, rel=1e-3)
    assert found.pairs(("latency", 8), "region", NATIVE.name) == ([], [])


def test_a_study_of_so_many_blocks_ends_with_them() -> None:
    design = Design((), trials=4)
    assert ended(design, Estimates(STUDY), 3) is None
    ending = ended(design, Estimates(STUDY), 4)
    assert ending is not None
    assert (ending.blocks, ending.reasons) == (4, {})


def test_a_study_with_a_cap_ends_when_all_is_decided() -> None:
    design = Design((Comparison("network", "region"),), trials=6, most_trials=40)
    noise = np.random.default_rng(5).normal(0, 0.3, 50)
    clear = [estimates(blocks, lambda block: 0.2 + block / 1000) for blocks in range(41)]
    blocks = next(n for n in range(41) if ended(design, clear[n], n) is not None)
    assert 6 <= blocks < 20
    ending = ended(design, clear[blocks], blocks)
    assert ending is not None
    assert ending.reasons == {"region/network latency 8": "different"}
    # An open comparison goes on, and ends with the cap.
    unclear = estimates(12, lambda block: float(np.exp(noise[block])))
    assert ended(design, unclear, 12) is None
    last = ended(design, estimates(40, lambda block: float(np.exp(noise[block]))), 40)
    assert last is not None
    assert last.reasons == {"region/network latency 8": "cap reached"}


def test_a_cap_too_small_to_decide_anything_is_reached() -> None:
    design = Design((Comparison("network", "region"),), trials=2, most_trials=4)
    clear = estimates(4, lambda block: 0.2 + block / 1000)
    assert ended(design, clear, 3) is None
    ending = ended(design, clear, 4)
    assert ending is not None
    assert ending.reasons == {}
