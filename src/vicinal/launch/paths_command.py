"""`vicinal paths`: shows which path each pair of ranks of a running job uses, once or live."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.launch.paths import newest_job, traffic_of
from vicinal.mpi.job_region import region_path
from vicinal.mpi.traffic import NETWORK_PATH, REGION_PATH, JobTraffic

_WIDTH = 120
"""Columns of a table that is not shown on a terminal."""


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(name="paths")(paths)


def paths(
    region: Annotated[
        str | None,
        typer.Option(
            metavar="file:PATH|socket:PATH",
            help="The region; by default the regions of the newest job.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep showing the paths as they change, until the job ends or Ctrl-C."
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, max=3600, help="With --watch: time between two readings."
        ),
    ] = 1.0,
) -> None:
    """Show which path each pair of ranks of a running job uses."""
    regions = newest_job() if region is None else [region_path(region)]
    if watch:
        _watch(regions, interval)
    else:
        show_tables(traffic_of(regions), sys.stdout)


def show_tables(jobs: Sequence[JobTraffic], stream: object) -> None:
    """Show the tables of jobs on standard output or standard error."""
    # Without a terminal, the table is not cut to a terminal's width.
    console = Console(stderr=stream is sys.stderr)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(paths_tables(jobs))


def _watch(regions: Sequence[Path], interval: float) -> None:
    """Show what a job's regions say until a region is gone; signals end this as any command.

    On a terminal the table stays in place and its figures change. Elsewhere each table that differs
    from the last one is printed. Raises VicinalError if a region cannot be read at first.
    """
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    traffic: list[JobTraffic] | None = traffic_of(regions)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            while traffic is not None:
                live.update(paths_tables(traffic), refresh=True)
                time.sleep(interval)
                traffic = _now(regions)
    else:
        before = None
        while traffic is not None:
            if traffic != before:
                console.print(paths_tables(traffic))
                sys.stdout.flush()
                before = traffic
            time.sleep(interval)
            traffic = _now(regions)
    typer.echo("the job has ended", err=True)


def _now(regions: Sequence[Path]) -> list[JobTraffic] | None:
    """The traffic in the regions; None if a region does not exist any more."""
    try:
        return traffic_of(regions)
    except VicinalError:
        if all(region.exists() for region in regions):
            raise  # a region is damaged
        return None


def paths_tables(jobs: Sequence[JobTraffic]) -> Group:
    """Return a table for each of the jobs in a region."""
    return Group(*map(paths_table, jobs))


def paths_table(traffic: JobTraffic) -> Table:
    """Return the table that `vicinal paths` shows for one job."""
    # Text objects, because rich would interpret strings of members as markup.
    title = Text(f"Paths of {traffic.label or 'the job'}", style="table.title")
    table = Table(title=title, title_justify="left", highlight=True)
    for heading in ("from rank", "on", "to rank", "on", "path"):
        table.add_column(heading)
    for heading in ("messages", "volume"):
        table.add_column(heading, justify="right")
    names = traffic.hostnames
    for pair in traffic.pairs:
        table.add_row(
            str(pair.sender),
            Text(names.get(pair.sender, "-")),
            str(pair.receiver),
            Text(names.get(pair.receiver, "-")),
            pair.path,
            str(pair.messages),
            show_size(pair.bytes),
        )
    # Only other hosts know which ranks these peers are, so one row sums what a rank sent there.
    for sender in sorted({sent.sender for sent in traffic.beyond}):
        sent = [each for each in traffic.beyond if each.sender == sender]
        table.add_row(
            str(sender),
            Text(names.get(sender, "-")),
            f"{len(sent)} others",
            "other hosts",
            NETWORK_PATH,
            str(sum(each.messages for each in sent)),
            show_size(sum(each.bytes for each in sent)),
        )
    for rank, direct in traffic.direct.items():
        for what, with_whom, operations, count in (
            ("collectives", "communicators", direct.collectives, direct.collective_bytes),
            ("one-sided", "windows", direct.one_sided, direct.one_sided_bytes),
        ):
            if operations:
                table.add_row(
                    str(rank),
                    Text(names.get(rank, "-")),
                    with_whom,
                    "",
                    f"{REGION_PATH}, {what}",
                    f"{operations} calls",
                    show_size(count),
                )
    talked = {(p.sender, p.receiver) for p in traffic.pairs if p.sender != p.receiver}
    silent = len(names) * (len(names) - 1) - len(talked)
    if silent > 0:
        table.caption = f"{silent} of the pairs of {len(names)} ranks have exchanged no messages"
    return table
