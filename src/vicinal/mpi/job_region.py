"""A region that is there already, for a job that is to use it."""

import os
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_size
from vicinal.mpi.environment import check_region_name
from vicinal.region import inspect


def region_path(region: str) -> Path:
    """The file of a region's name. Raises VicinalError for a guest's device."""
    kind, _, place = check_region_name(region).partition(":")
    if kind != "file":
        raise VicinalError(
            f"{region} is a device of a guest", "name the file that it shows: file:PATH"
        )
    return Path(place)


def usable_region(path: Path, ranks: int, *, of_cluster: bool = False) -> Path:
    """A region's file with room for a job; raises VicinalError where it cannot be used.

    `of_cluster`: a cluster's file says what it is to be.
    """
    state = inspect(path, patience=0)
    if not os.access(path, os.R_OK | os.W_OK):
        raise VicinalError(
            f"you may not write to the region {path}", "run as the user it belongs to"
        )
    taken = sum(member.alive is True for member in state.members)
    free = state.header.members - taken
    if free < ranks:
        more = "create a region with more --members"
        if of_cluster:
            more = "let the cluster's file have more region.members, and call `vicinal up`"
        waits = state.header.members >= ranks
        raise VicinalError(
            f"the region {path} is full: {free} of {state.header.members} member slots are free "
            f"and the job has {ranks} ranks",
            f"wait for the other job's end, or {more}" if waits else more,
        )
    return path


def check_heap(path: Path, wanted: int | None, *, of_cluster: bool = False) -> None:
    """Raise VicinalError where the region in a file has no heaps, or others than are wanted."""
    there = inspect(path, patience=0).header.heap_bytes
    if there == 0:
        create = f"create it with `vicinal region create {path} --heap SIZE`"
        if of_cluster:
            create = "let the cluster's file have a region.heap, and call `vicinal up`"
        raise VicinalError(f"the region {path} has no heap", f"{create}, or leave out --heap")
    if wanted not in (None, there):
        raise VicinalError(
            f"the region {path} has heaps of {show_size(there)}",
            "write --heap region without a size, or leave out --region",
        )
