"""Reads the Slurm allocation of this process: its hosts, and the number of ranks for each host."""

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

    Each host gets as many ranks as Slurm was asked for tasks there. If no number of tasks was
    given, each host gets as many ranks as it has processors in the allocation. Raises VicinalError
    outside of an allocation.
    """
    listed = variables.get("SLURM_JOB_NODELIST")
    if not listed:
        raise VicinalError(
            "no Slurm allocation was found: SLURM_JOB_NODELIST is not set",
            "start the command from salloc or sbatch, or name hosts that ssh reaches with --hosts",
        )
    names = _expanded(listed)
    counts = "SLURM_TASKS_PER_NODE" if "SLURM_NTASKS" in variables else "SLURM_JOB_CPUS_PER_NODE"
    slots = _counts(variables.get(counts, ""))
    if len(slots) != len(names):
        raise VicinalError(
            f"the allocation has {len(names)} hosts, but {counts} is {variables.get(counts, '')!r}",
            "start the command from salloc or sbatch, not from a step or with variables of "
            "another job",
        )
    hosts = parse_hosts(",".join(names))
    return [Host(host.name, count) for host, count in zip(hosts, slots, strict=True)]


def _expanded(listed: str) -> list[str]:
    """The host names in a list such as `node[0-3,7]`."""
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
            f"scontrol does not expand the list of hosts {listed}",
            "run `scontrol show hostnames` to see why",
        ) from error
    return done.stdout.split()


def _counts(text: str) -> list[int]:
    """A number for each host, from a list such as `2(x3),1`; empty if the text is no such list."""
    found: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None or len(found) + int(match[2] or 1) > _MOST_HOSTS:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found
