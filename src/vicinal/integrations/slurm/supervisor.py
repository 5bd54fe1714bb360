"""The supervisor of a job's nodes on a host: creates the nodes, and stays until it is killed.

Slurm's plugin starts this module as a program (slurm/supervisor.c): as the job's user, as the first
process of a PID namespace, with a file system of its own as its directory. So nothing needs to be
removed at the end: after any end of the process, the kernel removes everything. The last line of
its output is the answer to the plugin: `ready`, or the reason why there are no nodes.

    PYTHON -I -m vicinal.integrations.slurm.supervisor FILE --directory PATH --job ID --hosts N
        --host N --tasks N --max-size BYTES [--channel DESCRIPTOR]
        [--host-network] [--vf LINE]...
"""

import argparse
import os
import signal
import stat
import sys
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.sizes import show_size
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.file.reading import read_cluster
from vicinal.integrations.slurm.granted_vfs import GrantedVf
from vicinal.integrations.slurm.nodes_job import NodesJob, check_cluster, share_of
from vicinal.integrations.slurm.staying import let_go, stay
from vicinal.region import geometry
from vicinal.region.creation import LABEL_BYTES, create, default_members
from vicinal.region.heap_size import default_heap

_FILE_BYTES = 1 << 20
_SECRET = "VICINAL_JOB_SECRET"
"""Environment variable with the job's secret as hexadecimal digits: slurm/job_secret.h."""


def main() -> None:
    """Create the nodes, write `ready`, and stay. Exits with the cause if the nodes cannot be
    created.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a killed step does not end the job
    try:
        make(_job(sys.argv[1:]))
    except VicinalError as error:
        sys.exit(f"vicinal: {error}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        said = f"the job's nodes could not be created: {where}{describe_os_error(error)}"
        sys.exit(f"vicinal: {said}: call `vicinal doctor` on that host")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    let_go()
    stay()


def make(job: NodesJob) -> None:
    """Create the nodes of this host, and write their list for tasks. Raises VicinalError,
    OSError.
    """
    _check_file(job.file)
    cluster = read_cluster(job.file)
    kind = check_cluster(cluster)
    nodes = share_of(job, cluster.nodes)
    region = _make_region(job, cluster, kind)
    if kind is BackEnd.VM:
        from vicinal.integrations.slurm.guest_nodes import make_guests

        make_guests(job, cluster, nodes, region).write(job.directory)
        return
    # Python needs as long to import this module as to create two containers.
    from vicinal.integrations.slurm.container_nodes import make_containers

    make_containers(job, cluster, nodes, region).write(job.directory)


def _job(arguments: list[str]) -> NodesJob:
    parser = argparse.ArgumentParser("vicinal.integrations.slurm.supervisor")
    parser.add_argument("file", type=Path)
    parser.add_argument("--directory", type=Path, required=True)
    for option in ("--job", "--hosts", "--host", "--tasks"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--max-size", type=int, required=True, dest="max_bytes")
    parser.add_argument("--channel", type=int)
    parser.add_argument("--host-network", action="store_true")
    parser.add_argument("--vf", type=GrantedVf.parse, action="append", default=[])
    secret = bytes.fromhex(os.environ.pop(_SECRET, ""))
    given = vars(parser.parse_args(arguments))
    vfs = tuple(given.pop("vf"))
    return NodesJob(**given, vfs=vfs, secret=secret or None)


def _check_file(file: Path) -> None:
    """Raise VicinalError unless the file can be read to its end; read_cluster() checks its
    contents.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise VicinalError(
            f"the cluster file {file} could not be read ({describe_os_error(error)})",
            "name a file that this host also sees",
        ) from error
    if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES:
        raise VicinalError(
            f"{file} is no cluster file: it is not a regular file, or has more than {_FILE_BYTES} "
            "bytes",
            "name another file",
        )


def _make_region(job: NodesJob, cluster: Cluster, kind: BackEnd) -> tuple[Path, int] | None:
    """Create the region; returns its file and its member slots, or None if the nodes have no
    region.

    Raises VicinalError if the region would take more than the administrator allows.
    """
    settings = cluster.region
    if settings is None:
        return None
    guests = kind is BackEnd.VM
    heap_bytes = settings.heap_bytes
    reserved = guests and heap_bytes is not None and heap_bytes > 0
    members = max(settings.members, default_members(job.tasks, reserved_heaps=reserved))
    if heap_bytes is None:
        heap_bytes = default_heap(
            members, settings.section_bytes, most=job.max_bytes, for_guests=guests
        )
    size = geometry.region_bytes(members, settings.section_bytes + heap_bytes)
    if size > job.max_bytes:
        raise VicinalError(
            f"a region of {members} members takes {show_size(size)}, and Slurm's administrator "
            f"allows {show_size(job.max_bytes)}",
            f"lower the size of region in {job.file}, or ask an administrator to raise max_size",
        )
    region = job.directory / "region"
    create(
        region,
        members=members,
        section_bytes=settings.section_bytes,
        heap_bytes=heap_bytes,
        label=f"slurm job {job.job}"[:LABEL_BYTES],
        for_guests=guests,
    )
    return region, members


if __name__ == "__main__":
    main()
