"""The network of a job's nodes over hosts that reach each other only by IPv6, without a Slurm."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_support import Hosts
from launch_support import GUARD_SECONDS

from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm import job_network

VICINAL = str(Path(sys.executable).parent / "vicinal")
JOIN = r"""
set -e
unshare -n sleep 600 >/dev/null 2>&1 & between=$!
unshare -n sleep 600 >/dev/null 2>&1 & nodes=$!
until [ "$(readlink /proc/$nodes/ns/net)" != "$(readlink /proc/self/ns/net)" ] &&
	[ "$(readlink /proc/$between/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
trap 'kill $between $nodes' EXIT
OTHER slurm network 7 --between /proc/$between/ns/net --nodes /proc/$nodes/ns/net --hosts HOSTS
trap - EXIT
in_nodes="nsenter -t $nodes -n"
$in_nodes ip address add 192.168.7.OWN/24 dev uplink
$in_nodes ip link set uplink up
$in_nodes ip -o link show uplink | sed 's/.* mtu \([0-9]*\) .*/\1/'
echo $nodes $between
"""
ECHO = """
import socket
with socket.create_server(("192.168.7.3", 7777)) as server, server.accept()[0] as peer:
    while data := peer.recv(1 << 16):
        peer.sendall(data)
"""
ASK = """
import os, socket, time
end = time.monotonic() + 30
while True:
    try:
        peer = socket.create_connection(("192.168.7.3", 7777), timeout=10)
        break
    except ConnectionRefusedError:
        assert time.monotonic() < end
        time.sleep(0.05)
for _ in range(16):
    sent, got = os.urandom(1 << 16), b""
    peer.sendall(sent)
    while len(got) < len(sent):
        got += peer.recv(len(sent))
    assert got == sent
print("the same")
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts with addresses fd00::1 to fd00::3."""
    with Hosts(3, tmp_path) as opened:
        for number, name in enumerate(opened.names, 1):
            device = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
            add = f"ip -6 address add fd00::{number}/64 dev eth0 nodad"
            opened.cluster.run_in(name, ["sh", "-c", f"echo 0 >{device} && {add}"])
        yield opened


def join(hosts: Hosts, own: int, others: str) -> list[str]:
    """Join a host's nodes to the others. Returns the network's MTU and the holder's process id."""
    script = JOIN.replace("OTHER", VICINAL).replace("HOSTS", others).replace("OWN", str(own))
    command = ["sh", "-c", f"({script}) </dev/null"]
    return hosts.cluster.run_in(f"node{own - 1}", command).split()


def test_nodes_of_hosts_reach_each_other(hosts: Hosts) -> None:
    """Their frames are 70 bytes shorter than the frames of the hosts."""
    first = join(hosts, 1, "node1=fd00::2,node2=fd00::3")
    second = join(hosts, 3, "node0=fd00::1,node1=fd00::2")
    assert first[0] == second[0] == str(1500 - 70)
    in_second = ["nsenter", "-t", second[1], "-n", sys.executable, "-c", ECHO]
    command = hosts.entered(["ssh", "node2", shlex.join(in_second)])
    with subprocess.Popen(command, env=hosts.environment()) as server:
        in_first = ["nsenter", "-t", first[1], "-n", sys.executable, "-c", ASK]
        assert hosts.cluster.run_in("node0", in_first) == "the same\n"
        assert server.wait(GUARD_SECONDS) == 0


def test_hosts_of_which_some_are_in_ipv4_and_some_in_ipv6_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_network, "_is_routed", lambda _address: True)
    addresses = {"one": "192.0.2.1", "other": "2001:db8::1"}
    with pytest.raises(
        VicinalError, match="neither IPv4 nor IPv6 reaches all hosts of the job: one at"
    ):
        job_network.join(7, Path("/a"), Path("/b"), addresses, 330)
