"""Which path the messages between each pair of ranks took, from what a region says."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from rich.table import Table
from rich.text import Text

from vicinal.cluster.native import KEEPER_MODULE
from vicinal.cluster.native_layout import EXCHANGE
from vicinal.errors import VicinalError
from vicinal.launch.running import REGION_PREFIX
from vicinal.launch.traffic import JobTraffic
from vicinal.region import RegionState, inspect
from vicinal.region.sizes import show_size


def paths_table(traffic: JobTraffic) -> Table:
    """The table that `vicinal paths` shows."""
    # Text for what members wrote, which would be taken for markup otherwise.
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
    talked = {(p.sender, p.receiver) for p in traffic.pairs if p.sender != p.receiver}
    silent = len(names) * (len(names) - 1) - len(talked)
    if silent > 0:
        table.caption = f"{silent} of the pairs of {len(names)} ranks have not talked"
    return table


def running_regions() -> Iterator[Path]:
    """The regions of this user's jobs that run on native clusters now."""
    for keeper in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if KEEPER_MODULE in keeper.cmdline() and keeper.uids().real == os.getuid():
                for init in keeper.children():
                    exchange = Path(f"/proc/{init.pid}/root{EXCHANGE}")
                    yield from exchange.glob(f"{REGION_PREFIX}*")


def newest_region() -> RegionState:
    """The region of the job that was started last among those that run now.

    Raises VicinalError where there is none.
    """
    states = []
    for path in running_regions():
        with suppress(VicinalError):  # it may end just now
            states.append(inspect(path, patience=0))
    if not states:
        raise VicinalError(
            "no job of yours runs through a region now",
            "start one with `vicinal run`, or name a region: --region file:PATH",
        )
    return max(states, key=lambda state: state.header.created)
