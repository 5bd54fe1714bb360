"""`vicinal paths --watch`: the table of paths, live."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live

from vicinal.base.errors import VicinalError
from vicinal.launch.paths import traffic_of
from vicinal.mpi.paths_table import paths_tables
from vicinal.mpi.traffic import JobTraffic

_WIDTH = 120
"""Of a table that no terminal shows."""


def watch_paths(regions: Sequence[Path], interval: float) -> None:
    """Show what a job's regions say until they are gone; signals end it as any command.

    On a terminal the table stays where it is, and its figures change. Elsewhere a table is
    printed whenever one differs from the last. Raises VicinalError where there is none at first.
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
    """What they say; None when one is there no more."""
    try:
        return traffic_of(regions)
    except VicinalError:
        if all(region.exists() for region in regions):
            raise  # it is damaged
        return None
