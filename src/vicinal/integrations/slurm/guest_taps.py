"""The network of a job's virtual machines on several hosts: taps at a bridge that root plugs into.

A process holds it, which is root of that network as its user, and ends with the keeper.
"""

import fcntl
import json
import os
import socket
import struct
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import ip
from vicinal.cluster.nodes.netns.network import BRIDGE, without_ipv6
from vicinal.host import namespaces as kernel
from vicinal.integrations.slurm.joining import UPLINK, Channel
from vicinal.integrations.slurm.staying import let_go, stay

MOST_TAPS = 253
"""So many files the kernel hands on at once."""
_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_ANSWER_BYTES = 1 << 16


def make_taps(channel: int, count: int) -> tuple[list[int], int]:
    """Open taps in a network that is joined with those of the job's other hosts, and its MTU.

    The channel is closed then. Raises VicinalError; what was made ends with the keeper.
    """
    if count > MOST_TAPS:
        raise VicinalError(
            f"{count} machines on a host cannot be joined with those of others, {MOST_TAPS} can",
            "make them fewer and larger",
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
        raise VicinalError(f"the machines' network: {said['fault']}", said["remedy"])
    return list(taps), int(said["mtu"])


def _hold(channel: int, count: int, writer: socket.socket) -> None:
    """In a child: make it, say so, and stay."""
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
        fault = f"{error.filename or 'it'}: {error.strerror or error}"
        remedy = f"see that users may make networks, and open {_TUN} (chmod 0666 {_TUN}, as root)"
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
    """Make a tap in this process's network; it is gone with the last who has it open."""
    tap = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    return tap
