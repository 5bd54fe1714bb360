"""Finds running jobs, and reads from their regions which messages they sent."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.head import EPHEMERAL
from vicinal.cluster.nodes.container.head_process import HEAD_MODULE
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch import host_files
from vicinal.launch.running import REGION_PREFIX
from vicinal.mpi.traffic import JobTraffic, job_traffic, merge_traffic
from vicinal.region import inspect
from vicinal.region.opening import PREFIX, is_socket
from vicinal.region.states import SlotState


def running_regions(*, of_all_users: bool = False) -> Iterator[list[Path]]:
    """The regions of each running job of this user: on ephemeral clusters, and over hosts.

    Each is a file's path, or the name of a broker's region.

    With `of_all_users`, which is for root, other users' jobs come too.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = process.cmdline()
            if HEAD_MODULE not in words or EPHEMERAL not in words:
                continue
            if of_all_users or process.uids().real == os.getuid():
                exchange = Path(f"/proc/{process.pid}/root{EXCHANGE}")
                yield [
                    Path(f"{PREFIX}{each}") if is_socket(str(each)) else each
                    for each in exchange.glob(f"{REGION_PREFIX}*")
                ]
    for region in host_files.regions(of_all_users=of_all_users):
        yield [region]


def newest_job() -> list[Path]:
    """The regions of the running job that started last, one for each host.

    Raises VicinalError if no job runs.
    """
    jobs = []
    for regions in running_regions():
        with suppress(VicinalError):  # the job may be ending
            created = [inspect(path, patience=0).header.created for path in regions]
            if created:
                jobs.append((max(created), regions))
    if not jobs:
        raise VicinalError(
            "no job of yours runs through a region now",
            "start one with `vicinal run`, or name a region: --region file:PATH",
        )
    return max(jobs)[1]


def traffic_of(regions: Sequence[Path]) -> list[JobTraffic]:
    """The messages that the jobs in these regions have sent: of running jobs, or of all jobs if
    none runs.

    Raises VicinalError if a region cannot be read.
    """
    states = [inspect(region, patience=0) for region in regions]
    members = [member for state in states for member in state.members]
    running = [
        each for each in members if each.state is SlotState.JOINED and each.alive is not False
    ]
    numbers = sorted({member.job for member in running or members}) or [0]
    return [
        merge_traffic(job_traffic(state.of_job(number)) for state in states) for number in numbers
    ]
