"""The jobs that Slurm has, by squeue."""

import subprocess

from vicinal.base.errors import VicinalError

_ANSWER_SECONDS = 30.0
_PENDING = "PD"
_GRES_OF = ("job", "node", "socket", "task")
"""A job can request GRES for each of these."""


def active_jobs() -> set[int]:
    """The ids of jobs that wait, run or end. List the leftovers first, and call this afterwards.

    Raises VicinalError if squeue does not answer.
    """
    return {int(line) for line in _ask("--format=%A")}


def jobs_with(gres: str) -> list[int]:
    """The ids of started jobs with a GRES, the earliest start first.

    Raises VicinalError if squeue does not answer.
    """
    asked = ",".join(f"tres-per-{each}:|" for each in _GRES_OF)
    found = _ask(f"--Format=JobID:|,StateCompact:|,StartTime:|,{asked}")
    begun = [
        (start, int(number))
        for number, state, start, *words in (line.split("|") for line in found)
        if state != _PENDING and any(names_gres(text, gres) for text in words)
    ]
    return [number for _, number in sorted(begun)]


def names_gres(text: str, gres: str) -> bool:
    """Whether a text such as gres:vf:eth1:2, or gres/vf=2 of later releases, names a GRES."""
    parts = (part.replace("/", ":").replace("=", ":").split(":") for part in text.split(","))
    return any(gres in part[:2] for part in parts)


def _ask(form: str) -> list[str]:
    command = ["squeue", "--noheader", "--all", form]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True
        )
        lines = done.stdout.split()
        if all(line.partition("|")[0].isdecimal() for line in lines):
            return lines
    except FileNotFoundError as error:
        raise VicinalError(
            "squeue was not found", "add the directory of Slurm's commands to PATH"
        ) from error
    except (subprocess.SubprocessError, OSError, UnicodeDecodeError):
        pass
    raise VicinalError(
        "squeue does not list Slurm's jobs, so nothing was done",
        f"run `{' '.join(command)}`, and check that slurmctld answers",
    )
