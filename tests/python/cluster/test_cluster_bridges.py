"""Containers at a bridge of the host, and containers without a network, with the real kernel.

The host's network is a network namespace of the test, with a bridge.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_client import CommandServer
from launch_support import MPIS, package_path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import BackEnd, Node
from vicinal.cluster.file.network import BridgeNetwork
from vicinal.cluster.nodes.network import find_tool
from vicinal.cluster.nodes.vm import links
from vicinal.cluster.nodes.vm.links import check_link, link_of, local_mac
from vicinal.cluster.resources.interfaces import CableResource
from vicinal.host.vf.settings import parse_mac
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

BRIDGE = "site0"
IP = find_tool("ip") or "ip"
NODES = """nodes:
  - name: a
    runtime: crun
    mounts: [.]
    network: {{bridge: {bridge}, address: 10.9.0.1/24}}
  - name: b
    runtime: bubblewrap
    mounts: [.]
    network: {{bridge: {bridge}, address: 10.9.0.2/24}}
region: none
"""
# Only a host that has the address refuses a connection to a port without a listener.
REACHES = """import errno, socket, sys
with socket.socket() as probe:
    probe.settimeout(10)
    sys.exit(probe.connect_ex((sys.argv[1], 9)) != errno.ECONNREFUSED)
"""


class Site:
    """A network namespace that stands for the host's network, and a cluster there."""

    def __init__(self, directory: Path, holder: int) -> None:
        self.directory = directory
        self.name = f"t{secrets.token_hex(5)}"
        self.file = directory / "cluster.yaml"
        self.enter = ["nsenter", f"--net=/proc/{holder}/ns/net", "--"]
        self.server = CommandServer(directory, lambda own: [*self.enter, *own])

    def write(self, text: str) -> None:
        self.file.write_text(f"name: {self.name}\n{text}")

    def environment(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.directory), "COLUMNS": "99"}
        return os.environ | {"PYTHONPATH": package_path()} | own

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.enter, sys.executable, "-m", "vicinal", *map(str, arguments)],
            env=self.environment(),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *arguments: str | Path, status: int = 0) -> str:
        """The output of a `vicinal` command, whose exit status must be `status`."""
        done = self.server.run([*map(str, arguments)], self.directory, self.environment())
        said = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == status, said
        assert "Traceback" not in said, said
        return said

    def ip(self, *arguments: str) -> str:
        return subprocess.run(
            [*self.enter, IP, *arguments], check=True, capture_output=True, text=True
        ).stdout

    def ports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ip("-j", "link", "show", "master", BRIDGE))
        return found

    def received(self) -> int:
        """How many bytes the bridge received from its ports."""
        found = json.loads(self.ip("-s", "-j", "link", "show", "master", BRIDGE))
        return sum(int(each["stats64"]["rx"]["bytes"]) for each in found)

    def interfaces(self) -> set[str]:
        return {each["ifname"] for each in json.loads(self.ip("-j", "link", "show"))}

    def reaches(self, node: str, address: str) -> bool:
        asked = ["exec", "-c", self.name, node, "/usr/bin/python3", "-c", REACHES, address]
        return self.server.run(asked, self.directory, self.environment()).returncode == 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("only root plugs anything into a bridge; what others are told is tested below")
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    site = Site(tmp_path, holder.pid)
    try:
        site.ip("link", "set", "lo", "up")
        site.ip("link", "add", BRIDGE, "type", "bridge")
        site.ip("address", "add", "10.9.0.254/24", "dev", BRIDGE)
        site.ip("link", "set", BRIDGE, "up")
        yield site
        site.call("down", site.name)
        assert site.interfaces() == {"lo", BRIDGE}
        site.server.close()
    finally:
        holder.kill()
        holder.wait()


def test_nodes_at_a_bridge(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write(NODES.format(bridge=BRIDGE))
    site.call("up", site.file)
    assert len(site.ports()) == 2
    shown = site.call(
        "exec", "-c", site.name, "a", "ip", "-4", "-o", "address", "show", "dev", "lan0"
    )
    assert "10.9.0.1/24" in shown
    for node, address in (("a", "10.9.0.254"), ("a", "10.9.0.2"), ("b", "10.9.0.1")):
        assert site.reaches(node, address), (node, address)
    assert not site.reaches("a", "10.9.0.77")
    assert "to create" not in site.call("plan", site.file)
    job = ("run", "-c", site.name, "-n", "2", "--path", "network")
    program = (mpi_program(Mpi.MPICH, "verify"), "--only", "sizes", "--max-size", "65536")
    for interface, passes in (("eth0", False), ("lan0", True)):
        monkeypatch.setenv("FI_TCP_IFACE", interface)
        before = site.received()
        site.call(*job, *program)
        assert (site.received() - before > 1 << 20) is passes, interface
    site.call("stop", site.name)
    assert site.ports() == []
    site.call("start", site.name)
    assert site.reaches("b", "10.9.0.1")
    # If somebody deletes a node's port, `up` connects the node again, and the node keeps running.
    site.call("exec", "-c", site.name, "a", "touch", "/tmp/kept")
    for port in site.ports():
        site.ip("link", "delete", port["ifname"])
    assert "cable/a  (it is gone)" in site.call("plan", site.file, status=2)
    site.call("up", site.file)
    site.call("exec", "-c", site.name, "a", "test", "-e", "/tmp/kept")
    assert site.reaches("a", "10.9.0.2")
    site.call("down", site.name)
    assert site.ports() == []
    # The bridge is unchanged.
    (bridge,) = json.loads(site.ip("-j", "address", "show", "dev", BRIDGE))
    assert "UP" in bridge["flags"]
    assert "10.9.0.254" in [each["local"] for each in bridge["addr_info"]]


def test_what_a_killed_command_plugged_in_is_pulled(site: Site) -> None:
    site.write(NODES.format(bridge=BRIDGE))
    up = site.start("up", site.file)
    assert up.stderr is not None
    for line in up.stderr:
        if "creating node/b" in line:
            break
    up.send_signal(signal.SIGKILL)
    up.communicate()
    assert len(site.ports()) == 1
    site.call("down", site.name)
    assert site.ports() == []


def test_bridges_that_cannot_be_had(site: Site) -> None:
    site.write(NODES.format(bridge="site1"))
    assert "there is no bridge 'site1' on this host" in site.call("up", site.file, status=1)
    site.write(NODES.format(bridge="lo"))
    assert "lo is not a bridge: name a bridge" in site.call("up", site.file, status=1)
    site.write(NODES.format(bridge=BRIDGE))
    site.ip("link", "set", BRIDGE, "down")
    said = site.call("up", site.file, status=1)
    assert f"the bridge {BRIDGE} is down: set it up: ip link set {BRIDGE} up" in said


@pytest.mark.parametrize("runtime", ["crun", pytest.param("bubblewrap", marks=pytest.mark.long)])
def test_a_job_in_a_node_without_a_network(site: Site, runtime: str) -> None:
    """The job runs within one node, because a launcher cannot reach a second node."""
    nodes = f"{{name: node, count: 2, runtime: {runtime}, network: none, mounts: [.]}}"
    site.write(f"nodes: [{nodes}]\nregion: {{members: 8}}\n")
    site.call("up", site.file)
    shown = site.call("exec", "-c", site.name, "node1", "ip", "-o", "link")
    assert [line.split()[1] for line in shown.strip().splitlines()] == ["lo:"]
    program = mpi_program(Mpi.MPICH, "verify")
    said = site.call("run", "-c", site.name, "-n", "2", program, status=1)
    assert "a launcher cannot start ranks on node0 and on node1: node0 has no network" in said
    site.call("down", site.name)
    site.write(f"nodes: [{nodes.replace('count: 2', 'count: 1')}]\nregion: {{members: 8}}\n")
    site.call("up", site.file)
    for mpi in MPIS:
        program = mpi_program(Mpi(mpi), "verify")
        said = site.call(
            "run", "-c", site.name, "-n", "3", "--paths", program, "--max-size", "4096"
        )
        assert "region" in said
    job = ("run", "-c", site.name, "-n", "2", "--timeout", "3")
    said = site.call(*job, mpi_program(Mpi.MPICH, "verify"), "--rounds", "999999", status=1)
    assert "did not end within 3 s" in said
    assert "verify" not in site.call("exec", "-c", site.name, "node", "ps", "ax")


CHECK_TAP = """import sys
from vicinal.cluster.nodes.host_network import check_tap
from vicinal.base.errors import VicinalError
try:
    check_tap(sys.argv[1], free=True)
except VicinalError as error:
    print(error)
"""
HOLD = """import fcntl, struct, sys
tap = open("/dev/net/tun", "r+b", buffering=0)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"mine", 0x1002))
print("open", flush=True)
sys.stdin.read()
"""


def test_taps_that_cannot_be_had(site: Site) -> None:
    environment = os.environ | {"PYTHONPATH": package_path()}

    def check(name: str, *become: str) -> str:
        command = [*site.enter, *become, "/usr/bin/python3", "-c", CHECK_TAP, name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert "there is no tap 'mine' on this host: create it as root: ip tuntap add" in check("mine")
    assert f"{BRIDGE} is not a tap" in check(BRIDGE)
    site.ip("tuntap", "add", "mine", "mode", "tap", "user", "root")
    try:
        assert "the tap mine is down: set it up: ip link set mine up" in check("mine")
        site.ip("link", "set", "mine", "up")
        assert check("mine") == ""
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        said = check("mine", *nobody)
        assert "only root may open the tap mine: create it for this user" in said
        held = subprocess.Popen(
            [*site.enter, sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert held.stdout is not None
        assert held.stdout.readline() == "open\n"
        assert "the tap mine is in use" in check("mine")
        held.communicate()
    finally:
        site.ip("link", "delete", "mine")


def bridged(backend: str) -> Node:
    network = BridgeNetwork(BRIDGE, None, None)
    return Node("n", BackEnd(backend), None, 1, (), None, network=network)


def test_what_an_ordinary_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VicinalError, match="only root can connect the container n to the bridge"):
        CableResource.of("a", bridged("container"))
    link = link_of("1000-a", bridged("vm"))
    monkeypatch.setattr(links, "check_bridge", lambda _: None)
    helper, allowed = tmp_path / "helper", tmp_path / "bridge.conf"
    monkeypatch.setattr(links, "HELPERS", (helper,))
    monkeypatch.setattr(links, "ALLOWED", allowed)

    def said() -> str:
        try:
            check_link("qemu:///session", link, starts=False)
        except VicinalError as error:
            return str(error)
        return ""

    assert "was not found: install qemu-system-common, or name a tap" in said()
    helper.touch()
    assert f"it has no privileges: as root, run `chmod u+s {helper}`" in said()
    helper.chmod(0o4755)
    assert f"qemu-bridge-helper may not connect VMs to {BRIDGE}: " in said()
    assert f"does not allow it: as root, write `allow {BRIDGE}` into" in said()
    allowed.write_text("allow other\n")
    assert "does not allow it" in said()
    allowed.write_text(f"# ours\nallow {BRIDGE}\n")
    assert said() == ""


def test_hardware_addresses_are_one_s_own_and_stay() -> None:
    addresses = [local_mac(owner, node) for owner in ("0-a", "0-b", "1-a") for node in ("n", "m")]
    assert len({*addresses}) == len(addresses)
    assert all(parse_mac(each) == each and each.startswith("02:") for each in addresses)
    assert local_mac("0-a", "n") == addresses[0]
