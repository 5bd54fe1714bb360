"""The full screen of `vicinal top`: what its keys do, and what of the jobs fits on the screen."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from vicinal.monitoring.sampling import Change, JobSample, Sampler, change_between
from vicinal.monitoring.showing import (
    Order,
    Shown,
    job_lines,
    jobs_table,
    nothing_runs,
    summary,
    unreadable_lines,
    whole_view,
)

_LOOK_SECONDS = 0.1
"""Time between two looks at the keys and at the screen's size."""
_LIST_KEYS = "q quit  s sort  / filter  up down select  enter one job"
_JOB_KEYS = "q quit  up down scroll  esc all jobs"
_SEQUENCES = {b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down"}
_NAMED = {
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "escape",
    b"\x7f": "erase",
    b"\x08": "erase",
}


@dataclass(frozen=True)
class Screen:
    """What the user chose by keys."""

    order: Order = Order.BYTES
    wanted: str = ""
    typing: bool = False
    """Whether keys are letters of `wanted`."""
    selected: tuple[str, str, int] | None = None
    """The key of the selected job; None: the first one."""
    detail: bool = False
    """Whether only the selected job is shown."""
    top: int = 0
    """The first line of the detail that is shown."""
    ended: bool = False
    """Whether the user wants no more."""

    def pressed(self, key: str, shown: Shown) -> "Screen":
        """Return the screen after a key. Unknown keys change nothing."""
        if self.typing:
            return self._typed(key)
        if key == "q":
            return replace(self, ended=True)
        if self.detail:
            return self._in_detail(key)
        if key == "s":
            orders = list(Order)
            return replace(self, order=orders[(orders.index(self.order) + 1) % len(orders)])
        if key == "/":
            return replace(self, typing=True, wanted="")
        if key == "escape":
            return replace(self, wanted="")
        keys = [job.key for job in shown.jobs]
        if not keys:
            return self
        place = keys.index(self.selected) if self.selected in keys else 0
        if key == "enter":
            return replace(self, selected=keys[place], detail=True, top=0)
        step = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0)
        return replace(self, selected=keys[min(max(place + step, 0), len(keys) - 1)])

    def _typed(self, key: str) -> "Screen":
        if key in ("enter", "escape"):
            return replace(self, typing=False, wanted=self.wanted if key == "enter" else "")
        if key == "erase":
            return replace(self, wanted=self.wanted[:-1])
        return replace(self, wanted=self.wanted + key) if len(key) == 1 else self

    def _in_detail(self, key: str) -> "Screen":
        if key in ("escape", "enter"):
            return replace(self, detail=False)
        step = {"up": -1, "k": -1, "down": 1, "j": 1}.get(key, 0)
        return replace(self, top=max(self.top + step, 0))

    def view(self, shown: Shown, height: int, interval: float) -> RenderableType:
        """Return what fits into `height` lines."""
        head = [summary(shown)]
        foot = [*unreadable_lines(shown.sample)[:3], self._status(interval)]
        room = max(height - len(head) - len(foot), 1)
        # One line is for the headings of the list.
        body = self._job_view(shown, room) if self.detail else self._list_view(shown, room - 1)
        return Group(*head, *body, *foot)

    def job(self, shown: Shown) -> JobSample | None:
        """The job that is shown in detail; None if there is none."""
        jobs = shown.sample.jobs if self.detail else ()
        return next((each for each in jobs if each.key == self.selected), None)

    def _job_view(self, shown: Shown, room: int) -> list[RenderableType]:
        job = self.job(shown)
        if job is None:
            return [Text("the job has ended")]
        lines = job_lines(shown, job)
        top = min(self.top, max(len(lines) - room, 0))
        return lines[top : top + room]

    def _list_view(self, shown: Shown, room: int) -> list[RenderableType]:
        jobs = shown.jobs
        if not jobs:
            return [nothing_runs(shown)]
        place = next((n for n, job in enumerate(jobs) if job.key == self.selected), 0)
        first = min(max(place - max(room, 1) + 1, 0), len(jobs) - 1)
        return [jobs_table(shown, jobs[first : first + max(room, 1)], jobs[place])]

    def _status(self, interval: float) -> Text:
        if self.typing:
            words = f"filter: {self.wanted}_"
        elif self.detail:
            words = _JOB_KEYS
        else:
            chosen = f", only {self.wanted}" if self.wanted else ""
            words = f"by {self.order}{chosen}, {interval:g} s  {_LIST_KEYS}"
        return Text(words, style="dim", no_wrap=True, overflow="ellipsis")


def show_live(console: Console, sampler: Sampler, screen: Screen, interval: float) -> None:
    """Show jobs until the user ends it: in place, or sample under sample on a dumb terminal.

    If reading takes longer than half of the interval, the pause is as long as the reading, so that
    hundreds of members do not keep a processor busy.
    """
    shown = Shown(sampler.take(), Change(0.0), screen.order, screen.wanted)
    if console.is_dumb_terminal:
        while True:
            console.print(whole_view(shown, screen.job(shown)))
            time.sleep(max(interval, shown.sample.seconds))
            shown = _next(sampler, shown)
    with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not screen.ended:
            size = console.size
            live.update(screen.view(shown, size.height, interval), refresh=True)
            until = shown.sample.monotonic + max(interval, 2 * shown.sample.seconds)
            while console.size == size:
                if pressed := keys(min(_LOOK_SECONDS, max(until - time.monotonic(), 0))):
                    for key in pressed:
                        screen = screen.pressed(key, shown)
                    shown = replace(shown, order=screen.order, wanted=screen.wanted)
                    break
                if time.monotonic() >= until:
                    shown = _next(sampler, shown)
                    break


def _next(sampler: Sampler, shown: Shown) -> Shown:
    now = sampler.take()
    return replace(shown, sample=now, change=change_between(shown.sample, now))


@contextmanager
def _keys() -> Iterator["Keys"]:
    """Yield what reads keys; the terminal's settings are restored at the end."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield Keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class Keys:
    """Reads keys from a terminal; None: there are no keys."""

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal

    def __call__(self, seconds: float) -> list[str]:
        """The keys that were pressed within a time; empty if there were none."""
        if self._terminal is None:
            time.sleep(seconds)
            return []
        if not select.select([self._terminal], [], [], seconds)[0]:
            return []
        data = os.read(self._terminal, 64)
        if not data:  # the terminal is gone
            return ["q"]
        return keys_of(data)


def keys_of(data: bytes) -> list[str]:
    """Names of the keys that a terminal sent; other escape sequences count as no key."""
    if data in _SEQUENCES:
        return [_SEQUENCES[data]]
    if data in _NAMED:
        return [_NAMED[data]]
    if data.startswith(b"\x1b"):
        parts = [data[at : at + 3] for at in range(0, len(data), 3)]
        return [_SEQUENCES[part] for part in parts if part in _SEQUENCES]
    keys = []
    for letter in data.decode("utf-8", "ignore"):
        key = _NAMED.get(letter.encode(), letter)
        if len(key) > 1 or key.isprintable():
            keys.append(key)
    return keys
