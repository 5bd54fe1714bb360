"""The check of `vicinal doctor` that starts a container node by each installed runtime."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import RUNTIMES, available_runtimes
from vicinal.cluster.nodes.container.cluster import ContainerCluster, cluster_names, remove_cluster
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.system import Host

_CLUSTER = "doctor"
_NODE = "node"
_SECONDS = 30
_MEMORY = 64 << 20
_REMEDY = "take another runtime"


def check_nodes(host: Host) -> Iterator[Finding]:
    """Create a node with each installed runtime, run a program in the node, and remove the node."""
    del host  # the nodes are created on the host that runs this code
    runtimes = [runtime.name for runtime in available_runtimes()]
    if not runtimes:
        yield skipped(
            f"no runtime that makes nodes is installed: {', '.join(RUNTIMES)}",
            "for nodes that are containers, on Debian `apt-get install crun`",
        )
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    with _cluster() as cluster:
        for runtime in runtimes:
            try:
                alike.setdefault(_try(cluster, runtime), []).append(runtime)
            except VicinalError as error:
                yield failed(f"{runtime}: {error.message}", error.remedy, runtimes=[runtime])
    for without, those in alike.items():
        came = f"{', '.join(those)}: a node came up, and a program ran in it"
        facts = {"runtimes": those, "without": list(without)}
        if without:
            yield warned(
                f"{came}, without {'; without '.join(without)}",
                "see the line about control groups; root has them",
                **facts,
            )
        else:
            yield passed(came, **facts)


@contextmanager
def _cluster() -> Iterator[ContainerCluster]:
    """Yield a cluster, and remove it at the end; first remove clusters of killed doctors."""
    for name in cluster_names():
        match = re.fullmatch(rf"{_CLUSTER}-(\d+)", name)
        if match and not psutil.pid_exists(int(match[1])):
            remove_cluster(name)
    try:
        yield ContainerCluster.create(_name())[0]
    finally:
        remove_cluster(_name())


def _try(cluster: ContainerCluster, runtime: str) -> tuple[str, ...]:
    """Create a node, run a program in it, and return the limitations of node and cluster.

    Raises VicinalError if the node cannot be created, or the program does not run.
    """
    cpu = min(os.sched_getaffinity(0))
    # With limits, so that the limitations name each limit that has no control group.
    cluster.create_node(ContainerSpec(_name(), _NODE, cpus=(cpu,), memory=_MEMORY), runtime)
    try:
        done = subprocess.run(
            cluster.exec_command(_NODE, ["true"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise VicinalError(
                f"no program runs in its node{': ' + lines[-1] if lines else ''}", _REMEDY
            )
        return tuple(dict.fromkeys(cluster.limitations))
    except subprocess.TimeoutExpired:
        raise VicinalError(
            f"a program in its node did not end within {_SECONDS} s", _REMEDY
        ) from None
    finally:
        cluster.remove_node(_NODE)


def _name() -> str:
    return f"{_CLUSTER}-{os.getpid()}"


NODES = Check(
    "nodes",
    "container nodes",
    "Whether nodes can be containers, by starting one with each runtime: crun, runc, bubblewrap",
    check_nodes,
)
