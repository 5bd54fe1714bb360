"""Removes the leftovers of jobs that Slurm no longer has: regions, and supervisors of nodes.

slurm/supervisor_record.h describes root's record of a supervisor.
"""

import re
from contextlib import suppress
from pathlib import Path

from vicinal.base.daemon import Identity, end
from vicinal.integrations.slurm.job_regions import idle_regions
from vicinal.integrations.slurm.queue import active_jobs

_NAME = re.compile(r"nodes-(\d{1,10})")
_END_SECONDS = 20.0


def sweep(directory: Path) -> list[Path]:
    """Remove the regions and supervisors of jobs that Slurm no longer has; returns the removed
    files.

    A region with a live member stays, whatever Slurm reports. Raises VicinalError, and removes
    nothing, if Slurm does not list its jobs.
    """
    idle, supervisors = idle_regions(directory), supervisor_records(directory)
    if not idle and not supervisors:
        return []
    active = active_jobs()
    regions = [path for path, job in idle.items() if job not in active]
    for path in regions:
        path.unlink(missing_ok=True)
    records = [path for path, job in supervisors.items() if job not in active]
    for path in records:
        end_supervisor(path)
    return sorted(regions + records)


def supervisor_records(directory: Path) -> dict[Path, int]:
    """The records of supervisors in a directory, and the job of each."""
    with suppress(FileNotFoundError):
        found = {path: _NAME.fullmatch(path.name) for path in directory.iterdir()}
        return {path: int(match[1]) for path, match in found.items() if match}
    return {}


def end_supervisor(record: Path) -> None:
    """End a supervisor, and with it all processes that it started, and remove its record.

    Raises VicinalError if the supervisor does not end; then the record stays.
    """
    try:
        words = record.read_text().split(" ", 3)
    except FileNotFoundError:
        return  # an epilog has removed the record
    if len(words) == 4:
        supervisor = Identity(int(words[0]), int(words[1]), boot=words[2])
        end(
            lambda: supervisor.process,
            "the supervisor of a job's nodes",
            _END_SECONDS,
            remedy="see where the kernel holds it: /proc/PID/stack",
        )
    record.unlink(missing_ok=True)
