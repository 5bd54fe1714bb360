"""Taking away what jobs left that Slurm no longer has: regions, and keepers of nodes."""

import subprocess
from pathlib import Path

from vicinal.errors import VicinalError
from vicinal.slurm.job_regions import idle_regions
from vicinal.slurm.keeper_records import end_keeper, keeper_records

_ANSWER_SECONDS = 30.0


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


def active_jobs() -> set[int]:
    """The jobs that wait, run or come to their end. To be asked after what is theirs was listed."""
    command = ["squeue", "--noheader", "--all", "--format=%A"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
        return {int(word) for word in done.stdout.split()}
    except FileNotFoundError as error:
        raise VicinalError(
            "squeue was not found", "add the directory of Slurm's commands to PATH"
        ) from error
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise VicinalError(
            "squeue does not say which jobs there are, so nothing was removed",
            f"run `{' '.join(command)}`, and see that slurmctld answers",
        ) from error
