"""A job on all nodes of a virtual cluster, whatever these are made of."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.containers import FarContainers
from vicinal.cluster.hosts.guests import FarGuests
from vicinal.cluster.manager import cluster_state, open_nodes
from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.root import OWN_TEMPORARY, shown
from vicinal.cluster.nodes.job_nodes import JobNodes, Node, Places, check_joined, check_running
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.cluster.nodes.vm.guests import MachineGuests
from vicinal.cluster.resources.containers import REGION_NAME
from vicinal.launch.guest_job import check_guest_job
from vicinal.launch.machine_job import RunningGuestJob
from vicinal.launch.running import RunningJob
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.job import Job
from vicinal.mpi.job_region import check_heap, usable_region
from vicinal.mpi.placement import place
from vicinal.mpi.program import HIDDEN, check_visible
from vicinal.mpi.started import Stream
from vicinal.mpi.traffic import JobTraffic

_SHOW = "let `mounts` of the cluster's file show its directory, or go to one that the nodes see"


@contextmanager
def job_on_cluster(
    job: Job,
    name: str,
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Iterator[RunningJob | RunningGuestJob]:
    """Start a job on the nodes of the cluster of this name, through the region that they share.

    At the end nothing of it is left. Raises VicinalError where it cannot be started.
    """
    cluster = open_nodes(name)
    if isinstance(cluster, MachineGuests | FarGuests):
        with closing(cluster):
            if isinstance(cluster, MachineGuests):  # else each host's agent sees to its own
                check_running(name, cluster.ended_nodes(), len(cluster.guests))
            job = _for_machines(job, cluster)
            with RunningGuestJob(
                job, cluster, stdin=stdin, stdout=stdout, stderr=stderr
            ) as in_guests:
                yield in_guests
        return
    if isinstance(cluster, FarContainers):
        with closing(cluster):
            if job.path is MessagePath.SHARED_MEMORY:
                raise VicinalError(
                    "the path shared-memory does not reach from node to node", "use another path"
                )
            _check_visible(job, cluster.here)
            in_region = job.path is MessagePath.REGION
            cluster.enter(job.ranks if in_region else None, heap=job.heap)
            if in_region:  # each host's, which all call the same
                job = replace(job, region=f"file:{EXCHANGE}/{REGION_NAME}")
            with RunningFarJob(job, cluster, stdin=stdin, stdout=stdout, stderr=stderr) as on_hosts:
                yield on_hosts
        return
    containers = cluster.containers() if isinstance(cluster, ContainerCluster) else cluster.nodes
    check_running(name, cluster.ended_nodes(), len(containers))
    region = cluster_state(name).region
    if job.path is MessagePath.SHARED_MEMORY and len(cluster.nodes) > 1:
        raise VicinalError(
            "the path shared-memory does not reach from node to node", "use another path"
        )
    inside = str(region)
    nodes: JobNodes = cluster
    if isinstance(cluster, ContainerCluster):
        _check_visible(job, cluster)
        inside = f"{EXCHANGE}/{REGION_NAME}"
        nodes = _nodes_for(job, cluster)
    if job.path is MessagePath.REGION:
        if region is None:
            alone = len(cluster.nodes) == 1
            raise VicinalError(
                f"the cluster {name} has no region",
                "use --path network" + (" or shared-memory" if alone else ""),
            )
        usable_region(region, job.ranks, of_cluster=True)
        if job.heap:
            check_heap(region, None, of_cluster=True)
        job = replace(job, region=f"file:{inside}")
    with RunningJob(job, nodes, stdin=stdin, stdout=stdout, stderr=stderr) as running:
        yield running


class RunningFarJob(RunningJob):
    """A job in containers of several hosts, of whose regions only one is this host's."""

    def __init__(self, job: Job, cluster: FarContainers, **streams: Stream) -> None:
        self._far = cluster
        super().__init__(job, cluster, **streams)

    def why_late(self) -> str:
        """Nothing: who is in the regions of the others is asked for at the end."""
        return ""

    def traffic(self) -> JobTraffic | None:
        """What the regions of all hosts say now of its messages; None where it has none."""
        return None if self.path is not MessagePath.REGION else self._far.traffic(self.number)


def _for_machines(job: Job, machines: MachineGuests | FarGuests) -> Job:
    """The job as it is to be for virtual machines. Raises VicinalError for what they cannot do."""
    check_guest_job(job)
    placed = place(job.ranks, [guest.name for guest in machines.guests])
    check_joined([each.node for each in placed], machines.alone)
    if job.path is MessagePath.REGION:
        machines.check_room(job.ranks, heap=job.heap)
    if job.progress is None:
        return job
    chosen = {"VICINAL_PROGRESS": Progress(job.progress).value}
    return replace(job, environment={**job.environment, **chosen})


def _nodes_for(job: Job, cluster: ContainerCluster) -> JobNodes:
    """The nodes for a job's launcher. Raises VicinalError where it could not reach all of them."""
    alone = {each.spec.name for each in cluster.containers() if not each.spec.joined}
    placed = [each.node for each in place(job.ranks, [node.name for node in cluster.nodes])]
    check_joined(placed, alone)
    return LoneNode(cluster, placed[0]) if placed[0] in alone else cluster


def _check_visible(job: Job, cluster: ContainerCluster) -> None:
    """Raise VicinalError where a node does not see the program, or the working directory."""
    directory = job.directory or Path.cwd()
    for container in cluster.containers():
        binds = container.spec.binds
        seen = [Path(bind.source) for bind in binds if bind.source == bind.destination]
        seen += shown(container.spec)
        for path in (Path(job.program[0]), directory):
            check_visible(path, (*HIDDEN, OWN_TEMPORARY), seen, _SHOW)


class LoneNode:
    """One node without a network, as JobNodes: launchers cannot reach it, and run in it."""

    def __init__(self, cluster: ContainerCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._cluster.nodes if node.name == self._name]

    @property
    def places(self) -> Places:
        return self._cluster.places

    @property
    def exchange(self) -> Path:
        """The directory for regions as this process sees it."""
        return self._cluster.exchange

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""
        return self._cluster.seen_from_host(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` in the node."""
        enter = [layout.ENTER, "--directory", str(directory or Path.cwd()), self._name]
        return self._cluster.head_command([*enter, *command], Path("/"))

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""
        self._cluster.end_command(running)

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started: in the node nobody hands it on."""
        del running
        processes = sorted(self.processes(), key=lambda process: process.pid)
        with suppress(psutil.Error):
            for process in processes[:1]:
                process.send_signal(number)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """What jobs run in it; host process ids."""
        return self._cluster.processes(node or self._name)

    def clear(self) -> None:
        """Kill what jobs left in it."""
        self._cluster.clear()

    def ended_nodes(self) -> list[str]:
        """Its name, if it does not run."""
        return [name for name in self._cluster.ended_nodes() if name == self._name]
