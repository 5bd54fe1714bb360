"""The nodes of a job that are virtual machines: QEMU processes below the supervisor, without
libvirt.

So the processes are in the job's control group and accounting, and end with the supervisor, as
containers do.

On a job with several hosts, the network of the VMs is a bridge with taps. Root connects the
bridge to the other hosts. One process holds this network, as its root and as the job's user. The
process ends with the supervisor.
"""

import fcntl
import json
import os
import select
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Cluster, Node
from vicinal.cluster.file.network import NoNetwork
from vicinal.cluster.nodes.host_network import ip
from vicinal.cluster.nodes.network import BRIDGE, without_ipv6
from vicinal.cluster.nodes.vm.vm import commands_text
from vicinal.cluster.vm.guest.identity import keys_of_secret
from vicinal.cluster.vm.image.building import find_image
from vicinal.cluster.vm.image.layout import GUESTS_FILE
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.cluster.vm.snapshot.hardware import PassedVf
from vicinal.cluster.vm.snapshot.starting import CommonNetwork, GuestMake, start_guests
from vicinal.host import namespaces as kernel
from vicinal.integrations.slurm.files import task_variables
from vicinal.integrations.slurm.guest_pmix import boot_commands
from vicinal.integrations.slurm.guest_task import GUESTS, TASKS
from vicinal.integrations.slurm.joining import UPLINK, Channel
from vicinal.integrations.slurm.node_list import ListedNode, NodeList
from vicinal.integrations.slurm.node_vfs import (
    NodeVf,
    listed_vfs,
    share_vfs,
    sole_interface,
)
from vicinal.integrations.slurm.nodes_job import NodesJob
from vicinal.integrations.slurm.staying import let_go, stay
from vicinal.mpi.libraries import Mpi
from vicinal.region.detaching import mark_dead

MOST_TAPS = 253
"""The kernel passes at most this many descriptors at once."""
_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_ANSWER_BYTES = 1 << 16


def make_guests(
    job: NodesJob, cluster: Cluster, nodes: Sequence[Node], region: tuple[Path, int] | None
) -> NodeList:
    """Start the VMs, from a snapshot if one exists; `region` is the file and its member slots.

    Raises VicinalError; VMs that were started end with the supervisor.
    """
    _check(job, cluster, nodes)
    shares = share_vfs(job.vfs, nodes)
    if job.vfs:
        _borrow(job)
    network = None
    if job.channel is not None and not job.alone:
        taps, mtu = make_taps(job.channel, len(nodes))
        keys = None if job.secret is None else keys_of_secret(job.secret, f"slurm job {job.job}")
        network = CommonNetwork([node.name for node in cluster.nodes], taps, mtu, keys)
    directory = job.directory / GUESTS
    directory.mkdir(mode=0o700)
    boot = boot_commands()
    started = start_guests(
        [
            GuestMake(
                node.name,
                -(-(node.memory_bytes or 0) // (1 << 20)),
                node.cpus,
                boot + (commands_text(node.commands, first=True) if node.commands else ""),
                not isinstance(node.network, NoNetwork),
                tuple(_passed(each) for each in shares.get(node.name, ())),
            )
            for node in nodes
        ],
        directory,
        None if region is None else region[0],
        network,
    )
    if region is not None:
        for guest in started:
            process = os.pidfd_open(guest.process)
            Thread(target=_watch, args=(process, region[0], guest.name), daemon=True).start()
    given = task_variables([Mpi.MPICH, Mpi.OPENMPI])
    told = {
        "environment": {**given, **launcher_variables(given)},
        "holds": sorted(find_image().holds),
    }
    (directory / TASKS).write_text(json.dumps(told))
    return NodeList(
        [ListedNode(node.name, None) for node in nodes],
        None,
        vfs=listed_vfs(shares, nodes) if job.vfs else {},
        interface=sole_interface(cluster) if job.vfs else None,
    )


def _borrow(job: NodesJob) -> None:
    """Ask root to let this user open the job's VFs.

    Raises VicinalError if the guests' kernel lacks a driver, or root refuses.
    """
    image = find_image()
    drivers = image.drivers()
    for vf in job.vfs:
        if vf.driver not in drivers:
            raise VicinalError(
                f"{vf.address} needs the driver {vf.driver!r}, and the guests' kernel "
                f"{image.kernel_version} does not have it (of the known drivers it has "
                f"{', '.join(sorted(drivers)) or 'none'})",
                "use containers, or VFs of another card",
            )
    assert job.channel is not None
    channel = Channel(os.dup(job.channel))
    try:
        channel.grant_to_vms()
    finally:
        channel.close()


def _passed(vf: NodeVf) -> PassedVf:
    has = vf.vf
    return PassedVf(has.address, has.driver, has.mac, vf.interface, vf.address)


def launcher_variables(given: Iterable[str]) -> dict[str, str]:
    """Variables with which mpiexec and mpirun in a guest start ranks in all of the job's guests by
    ssh.

    Without these, the launchers would use Slurm's variables, and a guest has no srun. `given` names
    the ranks' variables, which Open MPI passes on only if a variable lists them.
    """
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_HOST_FILE": GUESTS_FILE,
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_ras": "^slurm",
        # see _let_daemons_start_ranks() in vicinal.launch.launcher
        "PRTE_MCA_odls_base_max_threads": "0",
        "PRTE_MCA_prte_default_hostfile": GUESTS_FILE,
        "OMPI_MCA_mca_base_env_list": ";".join(
            name for name in given if not name.startswith("OMPI_MCA_")
        ),
    }


def _watch(process: int, region: Path, name: str) -> None:
    """Wait for a guest's end, and then mark its members dead in the region of the other guests."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll()
    with suppress(OSError, VicinalError):
        mark_dead(region, name)


def _check(job: NodesJob, cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Raise VicinalError for settings that a job's virtual machines cannot have."""
    if not job.alone and (job.channel is None or job.host_network):
        raise VicinalError(
            f"{job.file} has virtual machines, which cannot use the hosts' network, and the job "
            f"has {job.hosts} hosts",
            "give the job one host (srun -N1), or ask an administrator to run "
            "`vicinal slurm install` without --host-network",
        )
    device = cluster.region.device if cluster.region is not None else RegionDevice.IVSHMEM
    if device is not RegionDevice.IVSHMEM:
        raise VicinalError(
            f"{job.file} gives VMs the region as {device}, which cannot be hot-plugged",
            f"set region.device to {RegionDevice.IVSHMEM}",
        )
    for node in nodes:
        if node.additions or node.hugepages:
            key = "image" if node.additions else "hugepages"
            raise VicinalError(
                f"{job.file} gives {node.name!r} {key}, which a job's VMs cannot have",
                f"remove {key}, or start the cluster inside the job with `vicinal up`",
            )


def make_taps(channel: int, count: int) -> tuple[list[int], int]:
    """Open taps in a network that root connects to the job's other hosts; returns the taps and the
    MTU.

    Closes the channel. Raises VicinalError; the network ends with the supervisor.
    """
    if count > MOST_TAPS:
        raise VicinalError(
            f"{count} VMs on a host cannot be connected to VMs of other hosts: at most "
            f"{MOST_TAPS} can",
            "use fewer and larger VMs",
        )
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        reader.close()
        _hold(channel, count, writer)
    writer.close()
    os.close(channel)
    with reader:
        answer, taps, *_ = socket.recv_fds(reader, _ANSWER_BYTES, MOST_TAPS)
    said = json.loads(answer) if answer else {"fault": "it was killed", "remedy": "try again"}
    if "fault" in said:
        raise VicinalError(f"the VMs' network: {said['fault']}", said["remedy"])
    return list(taps), int(said["mtu"])


def _hold(channel: int, count: int, writer: socket.socket) -> None:
    """In the child process: create the network, report it, and stay."""
    try:
        kernel.enter_namespaces(kernel.CLONE_NEWNET)
        without_ipv6()
        names = [f"tap{number}" for number in range(count)]
        taps = [_open_tap(name) for name in names]
        ip(["link", "add", BRIDGE, "type", "bridge"])
        root = Channel(channel)
        root.join_hosts(Path("/proc/self/ns/net"))
        root.close()
        (uplink,) = json.loads(ip(["-j", "link", "show", "dev", UPLINK]))
        mtu = uplink["mtu"]
        for name in (UPLINK, *names):
            ip(["link", "set", "dev", name, "mtu", str(mtu), "master", BRIDGE, "up"])
        ip(["link", "set", "dev", BRIDGE, "up"])
    except VicinalError as error:
        socket.send_fds(writer, [_words(error.message, error.remedy)], [])
        os._exit(1)
    except OSError as error:
        fault = f"{error.filename or 'its namespace'}: {error.strerror or error}"
        remedy = f"let users create networks, and open {_TUN} (chmod 0666 {_TUN}, as root)"
        socket.send_fds(writer, [_words(fault, remedy)], [])
        os._exit(1)
    socket.send_fds(writer, [json.dumps({"mtu": mtu}).encode()], taps)
    writer.close()
    for tap in taps:
        os.close(tap)
    let_go()
    stay()


def _words(fault: str, remedy: str) -> bytes:
    return json.dumps({"fault": fault, "remedy": remedy}).encode()


def _open_tap(name: str) -> int:
    """Create a tap in this process's network; the tap is gone when its last descriptor is
    closed.
    """
    tap = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return tap
