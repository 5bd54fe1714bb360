"""An existing region that a job is to use."""

import os
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.mpi.environment import check_region_name
from vicinal.region import inspect

_LEAST_HEAP = 1 << 20
"""Smaller heaps are not meant for a program's allocations, of which the least have 64K."""


def region_path(region: str) -> Path:
    """Return the file behind a region's name, or the name of a broker's region, socket:PATH, as a
    path. Raises VicinalError for a guest's device."""
    kind, _, path = check_region_name(region).partition(":")
    if kind == "socket":
        return Path(region)
    if kind != "file":
        raise VicinalError(
            f"{region} is a device of a guest", "name the file behind the device: file:PATH"
        )
    return Path(path)


def usable_region(path: Path, ranks: int, *, of_cluster: bool = False) -> Path:
    """Return `path` if its region has room for `ranks` ranks.

    With `of_cluster` the remedies name the cluster's file. Raises VicinalError if this user may not
    write to the region, or if it has too few free slots.
    """
    state = inspect(path, patience=0)
    if not state.brokered and not os.access(path, os.R_OK | os.W_OK):
        raise VicinalError(
            f"this user may not write to the region {path}", "run as the region's owner"
        )
    taken = sum(member.alive is True for member in state.members)
    free = state.header.members - taken
    if free < ranks:
        more = f"{'serve' if state.brokered else 'create'} a region with more --members"
        if of_cluster:
            more = "raise region.members in the cluster's file, and run `vicinal up`"
        waits = state.header.members >= ranks
        raise VicinalError(
            f"the region {path} is full: {free} of {state.header.members} member slots are free "
            f"and the job has {ranks} ranks",
            f"wait until the other job has ended, or {more}" if waits else more,
        )
    return path


def check_heap(path: Path, wanted: int | None, *, of_cluster: bool = False) -> None:
    """Raise VicinalError if a region has no heaps, or heaps of another size than `wanted` (None:
    any)."""
    there = inspect(path, patience=0).header.heap_bytes
    if there < _LEAST_HEAP:
        create = f"create the region with `vicinal region create {path} --heap SIZE`"
        if of_cluster:
            create = "set region.heap in the cluster's file, and run `vicinal up`"
        what = f"heaps of only {show_size(there)}" if there else "no heap"
        raise VicinalError(f"the region {path} has {what}", f"{create}, or leave out --heap")
    if wanted not in (None, there):
        raise VicinalError(
            f"the region {path} has heaps of {show_size(there)}",
            "write --heap region without a size, or leave out --region",
        )
