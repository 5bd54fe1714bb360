"""The check of `vicinal doctor` that starts containers: a node of a cluster by each runtime."""

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
    """Make a node with each runtime that there is, run a program in it, and take it away."""
    del host  # they are made where this runs
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
    """A cluster for now; what a doctor that was killed left is cleared away too."""
    for name in cluster_names():
        match = re.fullmatch(rf"{_CLUSTER}-(\d+)", name)
        if match and not psutil.pid_exists(int(match[1])):
            remove_cluster(name)
    try:
        yield ContainerCluster.create(_name())[0]
    finally:
        remove_cluster(_name())


def _try(cluster: ContainerCluster, runtime: str) -> tuple[str, ...]:
    """What a node had to do without; raises VicinalError where none runs a program."""
    cpu = min(os.sched_getaffinity(0))
    # With limits, so that it says where there are none.
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
