"""`vicinal run`: runs an MPI program on isolated nodes, a virtual cluster, or several hosts.

Functions import modules that only jobs on clusters or over hosts need: importing them took a third
of the start of a job on isolated nodes.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.signals import Ended, handled
from vicinal.base.waiting import Word, told
from vicinal.cluster.hosts.remote.hosts import Host, allocation, parse_hosts, read_hostfile
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob, region_name
from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.job import Job
from vicinal.mpi.job_region import check_heap, region_path, usable_region
from vicinal.mpi.libraries import Mpi
from vicinal.mpi.option import MPI_PREFIX, chosen_mpi
from vicinal.mpi.preloading import DEFAULT_HEAP_BYTES, parse_heap
from vicinal.mpi.program import find_program
from vicinal.mpi.started import StartedJob

_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)


def register(app: typer.Typer) -> None:
    """Add the command to `vicinal`."""
    app.command(
        name="run",
        # Arguments after the program belong to the program.
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(run)


def run(
    program: Annotated[
        list[str], typer.Argument(help="The program and its arguments.", metavar="PROGRAM")
    ],
    ranks: Annotated[int, typer.Option("-n", "-np", "--ranks", min=1, help="Number of ranks.")],
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of isolated nodes; by default one for each rank."),
    ] = None,
    mpi: Annotated[
        Mpi | None,
        typer.Option(help="The MPI library; by default the one that the program is linked with."),
    ] = None,
    mpi_prefix: Annotated[Path | None, MPI_PREFIX] = None,
    path: Annotated[
        MessagePath, typer.Option(help="How messages travel; shared-memory needs a single node.")
    ] = MessagePath.REGION,
    show_paths: Annotated[
        bool, typer.Option("--paths", help="At the end, show which path each pair of ranks used.")
    ] = False,
    region: Annotated[
        str | None,
        typer.Option(
            metavar="file:PATH|socket:PATH",
            help="Use this region instead of creating one for the job.",
        ),
    ] = None,
    heap: Annotated[
        str | None,
        typer.Option(
            metavar="region[:SIZE]",
            help="Place allocations of 64K and more in the region, so that large messages can "
            "be copied once. SIZE, 256M by default, is the most that an endpoint takes, and is "
            "reserved when it is used. Any rank can then overwrite the data of other ranks: use it "
            "only for ranks that trust each other.",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="End the job if it runs longer."),
    ] = None,
    progress: Annotated[
        Progress | None,
        typer.Option(
            help="What waiting ranks do: keep polling (poll), sleep soon (block, for more ranks "
            "than cores), or poll first and then sleep (adaptive, the default)."
        ),
    ] = None,
    bind: Annotated[bool, typer.Option(help="Pin each rank to its own core.")] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="HOST[:RANKS],...",
            help="Run on these hosts instead of nodes of this host; ssh must reach the hosts "
            "without a prompt. Ranks of one host share a region, ranks of different hosts use the "
            "network.",
        ),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run on the hosts in this file, one a line: HOST, HOST:RANKS or HOST slots=RANKS.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--cluster",
            metavar="CLUSTER",
            help="Run on the nodes of this virtual cluster, through its region; `vicinal up` "
            "creates a cluster.",
        ),
    ] = None,
    slurm: Annotated[
        bool,
        typer.Option(
            "--slurm",
            help="Run on the hosts of the current Slurm allocation; srun reaches the hosts "
            "instead of ssh.",
        ),
    ] = False,
) -> int:
    """Run an MPI program on isolated nodes of this host, a virtual cluster, or several hosts."""
    chosen = _chosen_hosts(hosts, hostfile, slurm=slurm)
    if cluster is not None:
        _check_for_cluster(named=chosen is not None, nodes=nodes, region=region, bind=bind)
    found = find_program(program[0], anywhere=chosen is not None)
    if chosen is not None:
        _check_for_hosts(path, nodes=nodes, region=region, bind=bind)
        job = Job(
            program=[str(found), *program[1:]],
            ranks=ranks,
            mpi=chosen_mpi(mpi, mpi_prefix),
            path=path,
            heap=heap is not None,
            heap_bytes=(parse_heap(heap) if heap is not None else None) or DEFAULT_HEAP_BYTES,
            progress=progress,
        )
        reach = Reach.SLURM if slurm else Reach.SSH
        return _run_on_hosts(job, chosen, reach, timeout, show_paths)
    if cluster is not None:
        job = Job(
            program=[str(found), *program[1:]],
            ranks=ranks,
            mpi=chosen_mpi(mpi, mpi_prefix),
            path=path,
            heap=heap is not None,
            progress=progress,
        )
        return _run_on_cluster(job, cluster, timeout, show_paths)
    if nodes is not None and nodes > ranks:
        raise VicinalError(
            f"{nodes} nodes are more than {ranks} ranks: a node without a rank does nothing",
            f"ask for {ranks} nodes, or for more ranks with -n",
        )
    wanted = nodes if nodes is not None else ranks
    if path is MessagePath.SHARED_MEMORY:
        if nodes is not None and nodes > 1:
            raise VicinalError(
                f"the path shared-memory does not connect {nodes} nodes",
                "leave out --nodes, or use another path",
            )
        wanted = 1
    if region is not None and path is not MessagePath.REGION:
        raise VicinalError(
            f"the path {path.value} takes no region", "leave out --region, or use --path region"
        )
    heap_bytes = parse_heap(heap) if heap is not None else None
    shared: list[tuple[Path, str]] = []
    if region is not None:
        usable_region(region_path(region), ranks)
        shared = [(Path(region.partition(":")[2]), region_name())]
    if region is not None and heap is not None:
        check_heap(region_path(region), heap_bytes)
    job = Job(
        program=[str(found), *program[1:]],
        ranks=ranks,
        mpi=chosen_mpi(mpi, mpi_prefix),
        path=path,
        region=f"{(region or '').partition(':')[0]}:{EXCHANGE}/{shared[0][1]}" if shared else None,
        heap=heap is not None,
        heap_bytes=heap_bytes or DEFAULT_HEAP_BYTES,
        progress=progress,
        pin=bind,
    )
    cores = len(os.sched_getaffinity(0))
    if ranks > cores:
        _note(f"{ranks} ranks share {cores} cores: the job works, but runs slower")
    with ExitStack() as stack:
        with told(f"creating {wanted} isolated node{'s' * (wanted > 1)}"):
            isolated = stack.enter_context(EphemeralCluster(wanted, regions=shared))
        for limitation in isolated.limitations:
            _note(f"this system does not give the nodes {limitation}")
        return wait_for_job(RunningJob(job, isolated, stdin=job_input()), timeout, show_paths)


def wait_for_job(job: StartedJob, timeout: float | None, show_paths: bool) -> int:
    """Wait for a started job, forward signals to the job, and show its paths at the end."""
    with _closing(job), _signals_forwarded(job):
        try:
            status = job.wait(timeout)
        except Ended as ended:
            job.stop(ended.number)
            raise
        for name in job.lost:
            _note(f"the connection to {name} was lost while the job ran")
        if show_paths:
            _show_paths(job)
        return status


@contextmanager
def _closing(job: StartedJob) -> Iterator[None]:
    try:
        for note in job.notes:
            _note(note)
        yield
    finally:
        with told("removing what is left of the job"):
            job.close()


def _chosen_hosts(hosts: str | None, hostfile: Path | None, *, slurm: bool) -> list[Host] | None:
    """The hosts that one of the three options names; None without such an option."""
    if (hosts is not None) + (hostfile is not None) + slurm > 1:
        raise VicinalError(
            "--hosts, --hostfile and --slurm all name hosts", "leave out all but one of them"
        )
    if slurm:
        return allocation()
    if hosts is not None:
        return parse_hosts(hosts)
    return read_hostfile(hostfile, _note) if hostfile is not None else None


def _check_for_hosts(
    path: MessagePath, *, nodes: int | None, region: str | None, bind: bool
) -> None:
    """Raise VicinalError for options that cannot be combined with several hosts."""
    if path is MessagePath.SHARED_MEMORY:
        raise VicinalError(
            "the path shared-memory does not connect different hosts", "use another path"
        )
    if nodes is not None:
        raise VicinalError(
            "--nodes creates isolated nodes of this host, and a job over hosts uses the hosts "
            "themselves",
            "leave out --nodes or the hosts",
        )
    if region is not None:
        raise VicinalError(
            "each host of a job gets its own region, created for the job", "leave out --region"
        )
    if bind:
        raise VicinalError(
            "--bind pins ranks to cores of this host only",
            "leave out --bind, and bind by the MPI library's own variables",
        )


def _run_on_hosts(
    job: Job, hosts: Sequence[Host], reach: Reach, timeout: float | None, show_paths: bool
) -> int:
    from vicinal.launch.host_job import HostJob

    names = ", ".join(host.name for host in hosts)
    with told(f"waiting for {names} to get ready") as word:
        running = HostJob(job, hosts, reach=reach, stdin=job_input())
    _say_started(word)
    return wait_for_job(running, timeout, show_paths)


def _show_paths(running: StartedJob) -> None:
    with told("reading from the regions which paths were used"):
        traffic = running.traffic()
    if traffic is None:
        _note(f"every pair of ranks used the path {running.path.value}")
    else:
        from vicinal.launch.paths_command import show_tables

        sys.stdout.flush()
        show_tables([traffic], sys.stderr)


def job_input() -> int | None:
    """This process's standard input for the job, unless the input is empty."""
    try:
        nothing = os.path.samestat(os.fstat(0), Path(os.devnull).stat())
    except OSError:  # closed
        nothing = True
    return subprocess.DEVNULL if nothing else None


def _note(text: str) -> None:
    typer.echo(f"vicinal: note: {text}", err=True)


def _run_on_cluster(job: Job, named: str, timeout: float | None, show_paths: bool) -> int:
    """Run a job on all nodes of a virtual cluster, through the region that they share."""
    from vicinal.cluster.manager import find_name
    from vicinal.launch.cluster_job import job_on_cluster

    name = find_name(named)
    with ExitStack() as stack:
        with told(f"reaching the nodes of {name}") as word:
            running = stack.enter_context(job_on_cluster(job, name, stdin=job_input()))
        _say_started(word)
        return wait_for_job(running, timeout, show_paths)


def _say_started(word: Word) -> None:
    """After a message about a wait, say that the wait is over, because ranks may print nothing for
    long.
    """
    if word.was_said:
        _note("the job was started")


def _check_for_cluster(*, named: bool, nodes: int | None, region: str | None, bind: bool) -> None:
    """Raise VicinalError for options that cannot be combined with a virtual cluster."""
    if named:
        raise VicinalError(
            "--cluster and hosts were both named", "leave out --cluster or the hosts"
        )
    if nodes is not None or region is not None or bind:
        raise VicinalError(
            "the cluster file decides the nodes, the region and the processors of a cluster",
            "leave out --nodes, --region and --bind",
        )


@contextmanager
def _signals_forwarded(running: StartedJob) -> Iterator[None]:
    def forward(number: int, _frame: FrameType | None) -> None:
        running.forward(signal.Signals(number))

    with handled(_FORWARDED, forward):
        yield
