"""A cluster of containers on two hosts: a region on each host, and bridges that are connected.

The hosts are namespaces of this machine (host_support.py), each with a network, a /dev/shm and an
sshd of its own. The commands run on the first host. Jobs run with both MPI libraries.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil
import pytest
from cluster_file_support import read
from host_support import Hosts, check_paths
from launch_support import GUARD_SECONDS
from process_support import named, words_of

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program, read_records
from vicinal.mpi.libraries import STANDARD, Mpi

NAME = "overhosts-c2"
BRIDGE = "br0"
CHECKOUT = Path(__file__).parents[3]

# Each host has its own state of the containers and of the cluster.
_OWN = """
mkdir -p /run/vicinal-containers && mount -t tmpfs -o mode=700 tmpfs /run/vicinal-containers
"""
_MAKE_BRIDGE = f"""
ip link add {BRIDGE} type bridge && ip link set cable master {BRIDGE} &&
ip link set cable up && ip link set {BRIDGE} arp off up
"""


class TwoHosts(Hosts):
    """Two hosts with an Ethernet of their own, beside the network over which ssh reaches them."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._daemons = [named(self.cluster.processes(name), "sshd")[0].pid for name in self.names]
        first, second = self._daemons
        cable = f"ip link add cable type veth peer name cable netns {second}"
        self._inside(first, cable)
        for daemon in self._daemons:
            self._inside(daemon, _MAKE_BRIDGE)
            self._inside(daemon, _OWN)
        return self

    def _inside(self, daemon: int, script: str) -> None:
        enter = ["nsenter", "-t", str(daemon), "-n", "-m", "sh", "-c", script]
        subprocess.run(enter, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def entered(self, command: list[str]) -> list[str]:
        """The command line that runs `command` on the first host."""
        enter = ["nsenter", "-t", str(self._daemons[0]), "-m", "-u", "-i", "-p", "-n", "--"]
        change = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self.directory)]
        return [*enter, *change, *command]

    def call(self, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        state = str(self.directory / "state")
        done = self.vicinal(*arguments, XDG_STATE_HOME=state)
        assert done.returncode == status, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def left(self) -> list[str]:
        """What remains of the cluster on either host."""
        found = []
        for name, daemon in zip(self.names, self._daemons, strict=True):
            enter = ["nsenter", "-t", str(daemon), "-n", "-m"]
            links = subprocess.check_output([*enter, "ip", "-br", "link"], text=True)
            found += [f"{name}: {line}" for line in links.splitlines() if line.startswith("vic-")]
            for folder in ("/dev/shm", "/run/vicinal-containers"):
                listed = subprocess.check_output([*enter, "ls", folder], text=True).split()
                found += [f"{name}: {folder}/{each}" for each in listed if NAME in each]
        for state in (self.directory / "state", self.directory / ".local/state"):
            found += [str(path) for path in state.glob("vicinal/clusters/*")]
        for process in psutil.process_iter(["environ"]):
            if "VICINAL_CONTAINER" in (process.info["environ"] or {}):
                words = " ".join(words_of(process))
                if NAME in words:
                    found.append(words)
        return found

    def write(self, count: int = 4) -> Path:
        file = self.directory / "cluster.yaml"
        file.write_text(
            f"name: {NAME}\n"
            f"hosts: [{{name: node0, bridge: {BRIDGE}}}, {{name: node1, bridge: {BRIDGE}}}]\n"
            f"nodes: [{{name: c, count: {count}, runtime: bubblewrap, "
            f"mounts: ['{CHECKOUT}', '{self.directory}']}}]\n"
            "region: {members: 16}\n"
        )
        return file


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    # Nodes have a /tmp of their own, so the job's directory must be outside of /tmp.
    folder = Path("/var/tmp")
    with (
        tempfile.TemporaryDirectory(prefix="vh-", dir=folder) as directory,
        TwoHosts(2, Path(directory)) as two,
    ):
        yield two


@pytest.mark.long
@pytest.mark.timeout(2 * GUARD_SECONDS)
def test_a_region_on_each_host_and_a_bridge_between(hosts: TwoHosts) -> None:
    file = hosts.write()
    planned = hosts.call("plan", file, status=2).stdout
    assert "+ node1: uplink/main" in planned
    assert "+ node1: node/c3" in planned
    assert hosts.left() == []
    began = time.monotonic()
    hosts.call("up", file)
    print(f"up: {time.monotonic() - began:.1f} s")
    assert "unchanged" in hosts.call("plan", file).stdout
    state = json.loads(hosts.call("status", "--json", NAME).stdout)
    assert state["whole"] is True
    assert [(each["host"], each["name"], each["address"]) for each in state["nodes"]] == [
        ("node0", "c0", "10.0.0.1"),
        ("node0", "c1", "10.0.0.2"),
        ("node1", "c2", "10.0.0.3"),
        ("node1", "c3", "10.0.0.4"),
    ]
    for name in ("c0", "c3"):
        assert hosts.call("exec", "--cluster", NAME, name, "hostname").stdout == f"{name}\n"
    for mpi in STANDARD:
        verify(hosts, mpi)
    elsewhere(hosts)
    failing(hosts)
    hosts.call("stop", NAME)
    hosts.call("start", NAME)
    verify(hosts, Mpi.MPICH)
    hosts.call("down", NAME)
    assert hosts.left() == []


def verify(hosts: TwoHosts, mpi: Mpi) -> None:
    """Check every byte between all nodes. Ranks of one host must use its region."""
    began = time.monotonic()
    done = hosts.call(
        *("run", "--cluster", NAME, "-n", 4, "--paths", mpi_program(mpi, "verify")),
        *("--only", "sizes", "--max-size", 65536, "--rounds", 1),
    )
    records = read_records(done.stdout)
    assert records, done.stdout
    assert all(record["errors"] == 0 for record in records), records
    assert sum(record["messages"] for record in records) > 0
    check_paths(done.stderr, (0, 0, 1, 1))
    print(f"{mpi}: {time.monotonic() - began:.1f} s")


def elsewhere(hosts: TwoHosts) -> None:
    """On a host without containers of the cluster, the command says so."""
    job = [sys.executable, "-m", "vicinal", "run", "--cluster", NAME, "-n", "4", "/bin/true"]
    asked = hosts.cluster.head_command(job, hosts.directory)
    done = subprocess.run(
        asked,
        env=hosts.environment(XDG_STATE_HOME=str(hosts.directory / "state")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot start here: this host has none of them" in done.stderr


def failing(hosts: TwoHosts) -> None:
    """If a rank of the other host fails, or a job times out, nothing remains there."""
    done = hosts.vicinal(
        *("run", "--cluster", NAME, "-n", 4, "/bin/sh", "-c", "exit 3"),
        XDG_STATE_HOME=str(hosts.directory / "state"),
    )
    assert done.returncode == 3, done.stderr
    done = hosts.vicinal(
        *("run", "--cluster", NAME, "-n", 4, "--timeout", 5, "/bin/sleep", "871"),
        XDG_STATE_HOME=str(hosts.directory / "state"),
    )
    assert "did not end within 5 s" in done.stderr
    deadline = time.monotonic() + 60
    while left := [each.pid for each in psutil.process_iter(["cmdline"]) if _sleeps(each)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _sleeps(process: psutil.Process) -> bool:
    return (process.info["cmdline"] or [])[:2] == ["/bin/sleep", "871"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", bridge: b1}", "}", "a has a bridge for its nodes, and b has none"),
        (", bridge: b", "", "a container on the host a, which has no bridge"),
        ("count: 2", "count: 2, network: none", "is a container without a network"),
        ("count: 2}", "count: 2}, {name: v, backend: vm}", "c0 is a container, and v a virtual"),
    ],
)
def test_what_cannot_be(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (
        "name: lab\nhosts: [{name: a, bridge: b0}, {name: b, bridge: b1}]\n"
        "nodes: [{name: c, count: 2}]\n"
    )
    if new == "":
        text = text.replace(", bridge: b0", "").replace(", bridge: b1", "")
    with pytest.raises(VicinalError, match=said):
        read(tmp_path, text.replace(old, new))


def test_an_ordinary_user_cannot_plug_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from vicinal.cluster.resources.uplink import UplinkResource

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VicinalError, match="only root can connect the containers of lab to"):
        UplinkResource.of("lab", "br0", "10.0.255.254")
