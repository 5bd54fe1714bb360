"""Paths and variables inside a cluster of containers, as its head sees them.

The head has a tmpfs of its own on /run. Files that nodes share are in EXCHANGE, as in an ephemeral
cluster.
"""

from pathlib import Path

from vicinal.cluster.nodes.layout import EXCHANGE

STATE = "/run/cluster"
"""The cluster's state directory, which has another path on the host."""

HOST = "/run/host"
"""Directory with the host's /run and /dev/shm, which the head's own mounts hide."""

CGROUPS = "/run/cgroup"
"""The host's /sys/fs/cgroup; the head may have mounted another hierarchy on that path."""

HOST_CGROUPS = "/sys/fs/cgroup"

HIDDEN = ("/run", "/dev/shm")
"""Directories of the host that the head's own mounts hide."""

NODES = f"{STATE}/nodes"
HOSTS = f"{STATE}/hosts"

ENTER = "/run/enter"
"""Executable of the head that runs a command in a node.

Its arguments are [--tty] [--directory DIRECTORY] NODE COMMAND...
"""

REGION_NAME = "region"
"""File name of the cluster's region in EXCHANGE."""

REGION = f"{EXCHANGE}/{REGION_NAME}"
"""The region's path in the nodes."""

NODE_MARK = "VICINAL_CONTAINER"
"""Variable of a node's runtime and first process, with the value CLUSTER-ID/NODE/."""

JOB_MARK = "VICINAL_CONTAINER_JOB"
"""Variable of all processes that were started through one ContainerCluster object."""


def host_path(path: Path) -> str:
    """Return the head's path of an absolute path of the host that has no symbolic links."""
    for hidden in HIDDEN:
        if path.is_relative_to(hidden):
            return f"{HOST}{path}"
    return str(path)


def cgroup_path(path: str) -> str:
    """Return the head's path of a control group's directory on the host."""
    below = Path(path).relative_to(HOST_CGROUPS)
    return f"{CGROUPS}/{below}"
