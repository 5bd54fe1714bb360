"""The network of a job's virtual machines on several hosts, tried on one host. No guest runs."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from launch_support import NOBODY

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import OpenEnd
from vicinal.cluster.vm.snapshot.starting import CommonNetwork, GuestMake, joining_of
from vicinal.integrations.slurm.guest_nodes import MOST_TAPS, make_taps

NAMES = ["node0", "node1", "node2", "node3"]

# What root does for a supervisor, but without VXLAN. Each frame begins with a header of the kernel.
TRIAL = r"""
import ctypes, json, os, socket, subprocess, sys
from vicinal.integrations.slurm.guest_nodes import make_taps

ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    theirs.close()
    _, networks, *_ = socket.recv_fds(ours, 1, 1)
    network_file = f"/proc/{os.getpid()}/fd/{networks[0]}"
    cable = "link add nodes mtu 1450 type veth peer name uplink mtu 1450 netns".split()
    subprocess.run(["ip", *cable, network_file], check=True)
    subprocess.run(["ip", "link", "set", "nodes", "up"], check=True)
    ours.send(b"j")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)) as cable:
        cable.bind(("nodes", 0x88B5))
        cable.settimeout(20)
        ours.send(b"b")
        print(json.dumps({"outside": cable.recv(2000).hex()}), flush=True)
    os._exit(0)
ours.close()
if user := int(sys.argv[1]):
    os.chmod("/dev/net/tun", 0o666)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after a program was started
told = os.dup(theirs.fileno())
taps, mtu = make_taps(theirs.detach(), 2)
assert os.read(told, 1) == b"b"
frame = b"\xff" * 6 + b"\x02\0\0\0\0\1" + b"\x88\xb5" + b"hello" * 10
os.write(taps[0], bytes(10) + frame)
got = b""
while b"hello" not in got:
    got = os.read(taps[1], 2000)
os.wait()  # One prints after the other: without buffers a line and its end are two writes.
print(json.dumps({"mtu": mtu, "inside": got[10:].hex(), "frame": frame.hex()}), flush=True)
"""


def needs_taps() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or not Path("/dev/net/tun").exists():
        pytest.skip("taps in a network of one's own need root, /dev/net/tun and unshare")


@pytest.mark.parametrize("user", [0, NOBODY])
def test_vms_of_a_host_reach_each_other_and_the_cable(tmp_path: Path, user: int) -> None:
    """The test uses its own network namespace, and a /dev/net/tun that every user may open."""
    needs_taps()
    devices = f"mount -t tmpfs none {tmp_path} && mknod {tmp_path}/tun c 10 200 && "
    devices += f'mount --bind {tmp_path}/tun /dev/net/tun && exec "$@"'
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += ["sh", "-c", devices, "sh", sys.executable, "-c", TRIAL, str(user)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    assert said["mtu"] == 1450
    assert said["inside"] == said["outside"] == said["frame"]


def test_a_network_that_root_does_not_join_is_an_error() -> None:
    needs_taps()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with pytest.raises(
        VicinalError, match="were not connected to the nodes on the job's other hosts"
    ):
        make_taps(theirs.detach(), 1)


def test_more_vms_than_taps_can_be_handed_on() -> None:
    with pytest.raises(VicinalError, match=f"{MOST_TAPS} can"):
        make_taps(-1, MOST_TAPS + 1)


def test_guests_of_several_hosts_are_numbered_over_all() -> None:
    """Each guest has a network card with a unique address, and knows all names."""
    guests = [GuestMake("node2"), GuestMake("node3", joined=False)]
    joining = joining_of(guests, CommonNetwork(NAMES, [os.dup(0), os.dup(0)], 1450))
    found = {each.name: each for each in joining.identities()}
    assert [found[name].address for name in NAMES] == [f"10.0.0.{n}" for n in (1, 2, 3, 4)]
    macs = [card.mac for each in found.values() for card in each.cards]
    assert len(set(macs)) == len(macs)
    assert joining.macs("node2") == [found["node2"].cards[0].mac]
    assert found["node2"].cards[0].peer is None
    assert joining.macs("node3") == []
    assert joining.mtu == 1450
    with ExitStack() as ends:
        (wire,), none = joining.wires(ends)
        assert none == []
        assert words(wire) == f"tap,id=wire0,fd={wire.file}"


def words(end: OpenEnd) -> str:
    """The network option that QEMU gets for an end."""
    (option,) = end.options("wire0")
    return option.words[1]


def test_guests_of_one_host_have_a_wire_between_each_two() -> None:
    guests = [GuestMake("a"), GuestMake("b"), GuestMake("c", joined=False)]
    joining = joining_of(guests, None)
    with ExitStack() as ends:
        (one,), (other,), none = joining.wires(ends)
        assert none == []
        os.write(one.file, b"word")
        assert os.read(other.file, 9) == b"word"
    assert [len(each.cards) for each in joining.identities()] == [1, 1, 0]
    assert words(OpenEnd(7)) == "stream,id=wire0,addr.type=fd,addr.str=7"
