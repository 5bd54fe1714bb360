"""Checks whether nodes of a job on several hosts can have a network of their own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import ip
from vicinal.host import namespaces as kernel
from vicinal.integrations.slurm.checks import Found
from vicinal.integrations.slurm.job_network import addresses_of

_ANSWER_SECONDS = 30.0
_SHOWN = 3
"""Number of hosts without an address that are shown."""


def check(slurm_conf: Path) -> Iterator[Found]:
    """Check the kernel's VXLAN, and the hosts' addresses in Slurm. Changes nothing."""
    trouble = _vxlan_trouble()
    if trouble is not None:
        yield Found(
            not trouble,
            f"the kernel has {'no ' if trouble else ''}VXLAN{f' ({trouble})' if trouble else ''}",
            "nodes of a job on several hosts need VXLAN: load its module (modprobe vxlan), or let "
            "nodes use the hosts' network with `vicinal slurm install --host-network`",
            needed=False,
        )
    yield from _addresses(slurm_conf)


def _vxlan_trouble() -> str | None:
    """The error of a VXLAN device in a temporary network; "" if none, None if this user is
    not root.
    """
    if os.geteuid() != 0:
        return None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        trouble = ""
        try:
            kernel.unshare(kernel.CLONE_NEWNET)
            ip(["link", "add", "vxlan0", "type", "vxlan", "id", "1", "dstport", "0"])
        except (OSError, VicinalError) as error:
            trouble = str(error)
        os.write(writer, trouble.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        trouble = answer.read().decode()
    os.waitpid(child, 0)
    return trouble


def _addresses(slurm_conf: Path) -> Iterator[Found]:
    """Check that this host finds an address of each other host."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--all", "--format=%N %o"],
            env=os.environ | {"SLURM_CONF": str(slurm_conf)},
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return  # other checks report this failure
    own = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    faults: dict[str, str] = {}
    node_addresses = dict(line.split() for line in done.stdout.splitlines())
    for name, node_address in node_addresses.items():
        if len(faults) > _SHOWN:  # each host may take a name server's timeout
            break
        if name != own:  # a host's own name often resolves to 127.0.1.1
            try:
                addresses_of(name, node_address)
            except VicinalError as error:
                faults[name] = error.message
    shown = ", ".join(list(faults)[:_SHOWN]) + (", ..." if len(faults) > _SHOWN else "")
    first = next(iter(faults.values()), "")
    yield Found(
        not faults,
        f"these hosts have no usable address: {shown} ({first})"
        if faults
        else "all hosts have addresses",
        "jobs on these hosts and others cannot have nodes with a network of their own: set "
        "NodeAddr in slurm.conf",
        needed=False,
    )
