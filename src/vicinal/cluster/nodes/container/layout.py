"""Where things are inside of a cluster of containers, as its head sees them.

The head has a /run of its own. What nodes share lies in EXCHANGE, as in an ephemeral cluster.
"""

from pathlib import Path

from vicinal.cluster.nodes.layout import EXCHANGE

STATE = "/run/cluster"
"""The cluster's state directory, which lies elsewhere on the host."""

HOST = "/run/host"
"""The host's /run and /dev/shm, which the head's own hide."""

CGROUPS = "/run/cgroup"
"""The host's /sys/fs/cgroup, where runtimes see another one on it."""

HOST_CGROUPS = "/sys/fs/cgroup"

HIDDEN = ("/run", "/dev/shm")
"""Directories in whose place the head has its own."""

NODES = f"{STATE}/nodes"
HOSTS = f"{STATE}/hosts"

ENTER = "/run/enter"
"""Executable for the head: ENTER [--tty] [--directory DIRECTORY] NODE COMMAND..."""

REGION_NAME = "region"
"""The cluster's region is under this name in the nodes' exchange."""

REGION = f"{EXCHANGE}/{REGION_NAME}"
"""The region as nodes see it."""

NODE_MARK = "VICINAL_CONTAINER"
"""Variable of a node's runtime and first process: CLUSTER-ID/NODE."""

JOB_MARK = "VICINAL_CONTAINER_JOB"
"""Variable of what was started through one ContainerCluster object."""


def host_path(path: Path) -> str:
    """An absolute path of the host, without symbolic links, as the head sees it."""
    for hidden in HIDDEN:
        if path.is_relative_to(hidden):
            return f"{HOST}{path}"
    return str(path)


def cgroup_path(path: str) -> str:
    """A directory of a host's control group as the head sees it."""
    below = Path(path).relative_to(HOST_CGROUPS)
    return f"{CGROUPS}/{below}"
