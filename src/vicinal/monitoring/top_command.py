"""`vicinal top`: a live view of the jobs on this host, or one sample of them."""

import json
import os
import sys
import time
from typing import Annotated

import typer
from rich.console import Console

from vicinal.base.errors import VicinalError
from vicinal.base.wording import nearest
from vicinal.monitoring.as_json import as_json
from vicinal.monitoring.live import Screen, show_live
from vicinal.monitoring.options import Interval, RegionNames, sampler_of
from vicinal.monitoring.sampling import Change, JobSample, change_between
from vicinal.monitoring.showing import Order, Shown, whole_view
from vicinal.region.commands import PATIENCE

_WIDTH = 120
"""Columns of tables that are not shown on a terminal."""


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="top")(top)


def top(
    region: RegionNames = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show one job in detail, by its name or number."),
    ] = None,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Show only jobs with this text in their name, in their region's path, or in the "
            "host name of a member.",
        ),
    ] = "",
    sort: Annotated[Order, typer.Option(help="What jobs are sorted by.")] = Order.BYTES,
    once: Annotated[
        bool, typer.Option("--once", help="Show one sample, after one interval, and end.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="With --once: print the sample as JSON.")
    ] = False,
    interval: Interval = 1.0,
) -> None:
    """Show what the jobs on this host do now: ranks, messages, collectives, memory, faults.

    Figures come from the jobs' regions; ranks do nothing for it. Rates are differences of two
    readings, one interval apart, of counts that ranks update from time to time; coll/s and
    1-sided/s are calls without messages, of all members. Keys of the live view: q quits, s sorts by
    the next figure, / filters, the arrows select, Enter shows one job, Escape goes back.
    """
    if json_ and not once:
        raise VicinalError("a live view is not JSON", "add --once")
    sampler = sampler_of(region)
    if not once:
        console = _terminal()
        screen = Screen(sort, filter_)
        if job is not None:
            found = _find(Shown(sampler.take(), Change(0.0)), job)
            screen = Screen(sort, filter_, selected=found.key, detail=True)
        show_live(console, sampler, screen, interval)
        return
    before = sampler.take(patience=PATIENCE)
    time.sleep(max(0.0, interval - before.seconds))
    now = sampler.take()
    shown = Shown(now, change_between(before, now), sort, filter_)
    chosen = None if job is None else _find(shown, job)
    if json_:
        jobs = shown.jobs if chosen is None else [chosen]
        typer.echo(json.dumps(as_json(now, shown.change, jobs), indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(whole_view(shown, chosen))


def _terminal() -> Console:
    """The terminal of the live view. Raises VicinalError if there is none."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # rich would keep to these sizes if the terminal changes its own
    console = Console()
    if not console.is_terminal or not sys.stdout.isatty():
        raise VicinalError("the live view needs a terminal", "print one sample with --once")
    return console


def _find(shown: Shown, name: str) -> JobSample:
    jobs = shown.jobs
    for job in jobs:
        if name in (job.name, str(job.job)):
            return job
    remedy = nearest(name, {job.name for job in jobs}) if jobs else "start one with `vicinal run`"
    raise VicinalError(f"no job {name} runs through a region of this host now", remedy)
