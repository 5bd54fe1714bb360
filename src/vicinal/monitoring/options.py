"""Options that `vicinal top` and `vicinal metrics` share."""

from typing import Annotated

import typer

from vicinal.monitoring.sampling import Sampler, host_regions
from vicinal.mpi.job_region import region_path

RegionNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="file:PATH|socket:PATH",
        help="Read only this region; may be given several times. Default: the regions of your "
        "jobs, clusters and Slurm jobs on this host; for root, those of all users.",
    ),
]
Interval = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, max=3600, help="Time between two readings.")
]


def sampler_of(regions: list[str] | None) -> Sampler:
    """Return a sampler of the named regions, or of all regions of this host."""
    if not regions:
        return Sampler(host_regions)
    paths = [region_path(each) for each in regions]
    return Sampler(lambda: paths, strict=True)
