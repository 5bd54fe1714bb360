"""A cluster of virtual machines on two hosts, with a region on each host and UDP between them.

The hosts are namespaces of this machine. Each has a network, a /dev/shm, an sshd and a libvirt of
its own. They share this machine's file system, and so the image, as real hosts may.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import libvirt
import pytest
from domain_support import private_daemon
from guest_support import GUARD_SECONDS
from host_support import Hosts, check_paths
from process_support import named, words_of

from vicinal.cluster.vm.image.building import build_image
from vicinal.labs.programs import mpi_program, read_records
from vicinal.mpi.libraries import STANDARD

NAME = "h2"
"""Short, because of the sockets in the cluster's directory."""


class TwoHosts(Hosts):
    """Two hosts, each with a libvirt."""

    def __init__(self, directory: Path) -> None:
        super().__init__(2, directory)
        self._stack = ExitStack()
        self.uris: list[str] = []

    def start_daemons(self) -> None:
        for name in self.names:
            sshd = named(self.cluster.processes(name), "sshd")[0]
            enter = ["nsenter", "-t", str(sshd.pid), "-m", "-u", "-i", "-p", "-n", "--"]
            self.uris.append(self._stack.enter_context(private_daemon(enter)))

    def stop_daemons(self) -> None:
        self._stack.close()

    def call(self, *arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(XDG_STATE_HOME=str(self.directory / "state")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
            check=False,
        )
        assert done.returncode == status, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def left(self) -> list[str]:
        """Everything of the cluster that exists on either host."""
        found = [
            f"{uri}: {domain.name()}"
            for uri in self.uris
            for domain in libvirt.open(uri).listAllDomains()
        ]
        for name in self.names:
            listed = self.cluster.run_in(name, ["ls", "/dev/shm"]).split()
            found += [f"{name}: {each}" for each in listed if NAME in each]
            for process in self.cluster.processes(name):
                words = " ".join(words_of(process))
                if "qemu-system" in words.split(" ")[0] or f"{NAME}.{name}" in words:
                    found.append(f"{name}: {words}")
        for state in (self.directory / "state", self.directory / ".local/state"):
            found += [str(path) for path in state.glob("vicinal/clusters/*")]
        return found


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    # Not pytest's own directory, because the paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="vh-") as directory, TwoHosts(Path(directory)) as two:
        try:
            two.start_daemons()
            yield two
        finally:
            two.stop_daemons()


def test_a_region_on_each_host_and_the_network_between(hosts: TwoHosts) -> None:
    build_image(print)
    file = hosts.directory / "cluster.yaml"
    file.write_text(
        f"name: {NAME}\n"
        "hosts:\n"
        f"  - {{name: node0, hypervisor: 'qemu+unix:///system?{hosts.uris[0].partition('?')[2]}'}}\n"
        f"  - {{name: node1, hypervisor: '{hosts.uris[1]}'}}\n"
        "nodes: [{name: vm, backend: vm, count: 4, memory: 512M}]\n"
        "region: {members: 16}\n"
    )
    assert "+ node1: vm/vm3" in hosts.call("plan", file, status=2).stdout
    assert hosts.left() == []
    began = time.monotonic()
    hosts.call("up", file)
    print(f"up: {time.monotonic() - began:.1f} s")
    assert "unchanged" in hosts.call("plan", file).stdout
    state = json.loads(hosts.call("status", "--json", NAME).stdout)
    assert state["whole"] is True
    assert [(each["host"], each["name"]) for each in state["nodes"]] == [
        *(("node0", "vm0"), ("node0", "vm1"), ("node1", "vm2"), ("node1", "vm3"))
    ]
    for name in ("vm0", "vm3"):
        assert hosts.call("exec", "--cluster", NAME, name, "hostname").stdout.split() == [name]
    # By name, with the cluster's keys, across hosts.
    others = " && ".join(f"ssh vm{number} hostname" for number in (1, 2, 3))
    assert hosts.call("exec", "vm0", "sh", "-c", others).stdout.split() == ["vm1", "vm2", "vm3"]
    for mpi in STANDARD:
        verify(hosts, str(mpi_program(mpi, "verify")))
    hosts.call("stop", NAME)
    stopped = json.loads(hosts.call("status", "--json", NAME, status=1).stdout)
    assert {each["state"] for each in stopped["nodes"]} == {"stopped"}
    hosts.call("down", NAME)
    assert hosts.left() == []


def verify(hosts: TwoHosts, program: str) -> None:
    """Check every byte among all VMs; VMs of one host use its region."""
    began = time.monotonic()
    done = hosts.call(
        *("run", "--cluster", NAME, "-n", 4, "--paths", program),
        *("--only", "sizes", "--max-size", 65536, "--rounds", 1),
    )
    records = read_records(done.stdout)
    assert records, done.stdout
    assert all(record["errors"] == 0 for record in records), records
    assert sum(record["messages"] for record in records) > 0
    check_paths(done.stderr, (0, 0, 1, 1))
    print(f"{program}: {time.monotonic() - began:.1f} s")
