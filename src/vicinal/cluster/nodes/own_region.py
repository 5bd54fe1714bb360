"""The region of a cluster's nodes on this host, as a job in these nodes uses it."""

from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.job import Job
from vicinal.mpi.job_region import check_heap, usable_region
from vicinal.mpi.traffic import JobTraffic, job_traffic
from vicinal.region import inspect


@dataclass(frozen=True)
class OwnRegion:
    """The region's file; `path` is None for a cluster without a region."""

    path: Path | None

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError for no region, too little room for so many ranks, or no heap."""
        self._usable(ranks, "the cluster has no region", "use --path network", heap=heap)

    def in_it(self, job: Job, cluster: str, inside: str, *, alone: bool) -> Job:
        """The job with the cluster's region, which nodes see as the file `inside`.

        `alone`: the cluster has one node. Raises VicinalError as check_room().
        """
        remedy = "use --path network" + (" or shared-memory" if alone else "")
        self._usable(job.ranks, f"the cluster {cluster} has no region", remedy, heap=job.heap)
        return replace(job, region=f"file:{inside}")

    def traffic(self, job: int) -> JobTraffic | None:
        """What the region says of the job of this number; None where there is no region."""
        if self.path is None:
            return None
        return job_traffic(inspect(self.path, patience=0).of_job(job))

    def _usable(self, ranks: int, missing: str, remedy: str, *, heap: bool) -> None:
        if self.path is None:
            raise VicinalError(missing, remedy)
        usable_region(self.path, ranks, of_cluster=True)
        if heap:
            check_heap(self.path, None, of_cluster=True)
