"""Which path the messages between each pair of ranks took, from what a region says."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from rich.table import Table
from rich.text import Text

from vicinal.cluster.native import KEEPER_MODULE
from vicinal.cluster.native_layout import EXCHANGE
from vicinal.errors import VicinalError
from vicinal.launch import host_files
from vicinal.launch.running import REGION_PREFIX
from vicinal.launch.traffic import NETWORK_PATH, JobTraffic, job_traffic, together
from vicinal.region import inspect
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
    # Of other hosts only these know who their ranks are: all that a rank sent there in one row.
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
    talked = {(p.sender, p.receiver) for p in traffic.pairs if p.sender != p.receiver}
    silent = len(names) * (len(names) - 1) - len(talked)
    if silent > 0:
        table.caption = f"{silent} of the pairs of {len(names)} ranks have not talked"
    return table


def running_regions() -> Iterator[list[Path]]:
    """The regions of each of this user's jobs that runs now: on native clusters, or as a host."""
    for keeper in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if KEEPER_MODULE in keeper.cmdline() and keeper.uids().real == os.getuid():
                for init in keeper.children():
                    exchange = Path(f"/proc/{init.pid}/root{EXCHANGE}")
                    yield list(exchange.glob(f"{REGION_PREFIX}*"))
    for region in host_files.regions():
        yield [region]


def newest_job() -> list[Path]:
    """The regions of the job that was started last among those that run now, one a host.

    Raises VicinalError where there is none.
    """
    jobs = []
    for regions in running_regions():
        with suppress(VicinalError):  # it may end just now
            created = [inspect(path, patience=0).header.created for path in regions]
            if created:
                jobs.append((max(created), regions))
    if not jobs:
        raise VicinalError(
            "no job of yours runs through a region now",
            "start one with `vicinal run`, or name a region: --region file:PATH",
        )
    return max(jobs)[1]


def traffic_of(regions: Sequence[Path]) -> JobTraffic:
    """What a job's regions say now; raises VicinalError where one cannot be read."""
    return together(job_traffic(inspect(region, patience=0)) for region in regions)
