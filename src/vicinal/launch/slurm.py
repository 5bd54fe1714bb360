"""The Slurm allocation that this process is in: its hosts, and how many ranks each takes."""

import os
import re
import subprocess
from collections.abc import Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote.hosts import Host, parse_hosts

_ANSWER_SECONDS = 30.0
_COUNT = re.compile(r"(\d{1,7})(?:\(x(\d{1,7})\))?")
_MOST_HOSTS = 1 << 16


def allocation(variables: Mapping[str, str] = os.environ) -> list[Host]:
    """The hosts of the allocation, in Slurm's order.

    Each takes as many ranks as tasks were asked for, or as it has processors of the allocation
    if no number of tasks was given. Raises VicinalError outside of an allocation.
    """
    listed = variables.get("SLURM_JOB_NODELIST")
    if not listed:
        raise VicinalError(
            "this is not inside of a Slurm allocation: SLURM_JOB_NODELIST is not set",
            "start it from salloc or sbatch, or name hosts that ssh reaches with --hosts",
        )
    names = _expanded(listed)
    counts = "SLURM_TASKS_PER_NODE" if "SLURM_NTASKS" in variables else "SLURM_JOB_CPUS_PER_NODE"
    slots = _counts(variables.get(counts, ""))
    if len(slots) != len(names):
        raise VicinalError(
            f"the allocation has {len(names)} hosts, and {counts} says "
            f"{variables.get(counts, '')!r}",
            "start it from salloc or sbatch, not from a step or with variables of another job",
        )
    hosts = parse_hosts(",".join(names))
    return [Host(host.name, count) for host, count in zip(hosts, slots, strict=True)]


def _expanded(listed: str) -> list[str]:
    """The names in a list such as `node[0-3,7]`."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", listed],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise VicinalError(
            "scontrol was not found", "add the directory of Slurm's commands to PATH"
        ) from error
    except (subprocess.SubprocessError, OSError) as error:
        raise VicinalError(
            f"scontrol does not say which hosts {listed} are", "run `scontrol show hostnames`"
        ) from error
    return done.stdout.split()


def _counts(text: str) -> list[int]:
    """A number for each host, of a list such as `2(x3),1`; an empty list if it is none."""
    found: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None or len(found) + int(match[2] or 1) > _MOST_HOSTS:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found
