"""The region of a cluster's nodes on this host, for jobs in these nodes."""

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
        """Raise VicinalError without a region, or if it lacks room for `ranks` ranks or heaps."""
        self._usable(ranks, "the cluster has no region", "use --path network", heap=heap)

    def in_it(self, job: Job, cluster: str, inside: str, *, alone: bool) -> Job:
        """Return the job with the cluster's region, whose path in the nodes is `inside`.

        `alone` says that the cluster has one node. Raises VicinalError as check_room() does.
        """
        remedy = "use --path network" + (" or shared-memory" if alone else "")
        self._usable(job.ranks, f"the cluster {cluster} has no region", remedy, heap=job.heap)
        return replace(job, region=f"file:{inside}")

    def traffic(self, job: int) -> JobTraffic | None:
        """Return what the region counts of a job; None without a region."""
        if self.path is None:
            return None
        return job_traffic(inspect(self.path, patience=0).of_job(job))

    def _usable(self, ranks: int, missing: str, remedy: str, *, heap: bool) -> None:
        if self.path is None:
            raise VicinalError(missing, remedy)
        usable_region(self.path, ranks, of_cluster=True)
        if heap:
            check_heap(self.path, None, of_cluster=True)
