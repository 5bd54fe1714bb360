"""Taking away what jobs left that Slurm no longer has: regions, and keepers of nodes."""

from pathlib import Path

from vicinal.integrations.slurm.job_regions import idle_regions
from vicinal.integrations.slurm.keeper_records import end_keeper, keeper_records
from vicinal.integrations.slurm.queue import active_jobs


def sweep(directory: Path) -> list[Path]:
    """Remove what is there of jobs that Slurm no longer has; returns the files of that.

    A region that a living process is a member of stays, whatever Slurm says. Raises VicinalError,
    and removes nothing, where Slurm does not say which jobs there are.
    """
    idle, keepers = idle_regions(directory), keeper_records(directory)
    if not idle and not keepers:
        return []
    active = active_jobs()
    regions = [path for path, job in idle.items() if job not in active]
    for path in regions:
        path.unlink(missing_ok=True)
    records = [path for path, job in keepers.items() if job not in active]
    for path in records:
        end_keeper(path)
    return sorted(regions + records)
