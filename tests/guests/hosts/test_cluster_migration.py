"""A VM moves between two hosts of a cluster by `vicinal migrate`, while an MPI job runs in it.

The hosts are those of test_cluster_hosts.py: namespaces, each with a libvirt, a region and a
network of its own. Here each also has a bridge, and the bridges form one network.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from guest_support import BOUND
from launch_support import package_path
from process_support import named, signal_all
from test_cluster_hosts import NAME, TwoHosts

from vicinal.cluster.vm.image.building import build_image
from vicinal.labs.programs import mpi_program, read_records
from vicinal.mpi.libraries import Mpi

JOB_SECONDS = 7200  # the test ends it earlier
BRIDGE = "br0"

# Hosts answer at any interface for all their addresses, and VMs have the same addresses.
_MAKE_BRIDGE = f"""
ip link add {BRIDGE} type bridge && ip link set cable master {BRIDGE} &&
ip link set cable up && ip link set {BRIDGE} arp off up
"""


class BridgedHosts(TwoHosts):
    """Both hosts are in a network in which VMs can be."""

    def make_bridges(self) -> None:
        """Join the bridges by a separate cable, because hosts and VMs share addresses."""
        daemons = [named(self.cluster.processes(name), "sshd")[0].pid for name in self.names]
        cable = f"ip link add cable type veth peer name cable netns {daemons[1]}"
        for script, daemon in ((cable, daemons[0]), *((_MAKE_BRIDGE, each) for each in daemons)):
            subprocess.run(["nsenter", "-t", str(daemon), "-n", "sh", "-c", script], check=True)

    def write(self) -> Path:
        """vm0 and vm1 on the first host, vm2 on the second."""
        file = self.directory / "cluster.yaml"
        hosts = [
            f"  - {{name: {name}, hypervisor: '{uri}', bridge: {BRIDGE}}}\n"
            for name, uri in zip(self.names, self.uris, strict=True)
        ]
        file.write_text(
            f"name: {NAME}\nhosts:\n{''.join(hosts)}"
            "nodes: [{name: vm, backend: vm, count: 3, memory: 512M}]\nregion: {members: 8}\n"
        )
        return file

    def where(self) -> dict[str, str]:
        """The host of each running VM."""
        state = json.loads(self.call("status", "--json", NAME).stdout)
        return {each["name"]: each["host"] for each in state["nodes"]}

    def routes(self, host: str) -> dict[tuple[int, int], str]:
        """The routes by which ranks in a host's region send to each other."""
        search = f"PYTHONPATH={package_path()}"
        region = f"/dev/shm/vicinal-0-{NAME}"
        show = ["env", search, sys.executable, "-m", "vicinal", "region", "show", "--json", region]
        shown = self.cluster.run_in(host, show)
        state: dict[str, Any] = json.loads(shown)
        ranks = {
            each["slot"]: each["rank"] for each in state["members"] if each["state"] == "joined"
        }
        return {
            (ranks[each["sender"]], ranks[each["receiver"]]): each["route"]
            for each in state["connections"]
            if each["sender"] in ranks and each["receiver"] in ranks and each["messages"] > 0
        }

    def refused(self, *arguments: object) -> str:
        """The lines of the errors, one for each host with an error."""
        said = self.call(*arguments, status=1).stderr.splitlines()
        errors = [line for line in said if "error:" in line]
        assert errors, said
        return "\n".join(errors)


@pytest.fixture
def hosts() -> Iterator[BridgedHosts]:
    with (
        tempfile.TemporaryDirectory(prefix="vh-") as directory,
        BridgedHosts(Path(directory)) as two,
    ):
        try:
            two.make_bridges()
            two.start_daemons()
            yield two
        finally:
            two.stop_daemons()


def wait_until(what: str, job: subprocess.Popen[str], true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not true():
        if job.poll() is not None:
            pytest.fail(f"{what}: the job has ended: {''.join(job.communicate())}")
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def region_routes(*ranks: int) -> dict[tuple[int, int], str]:
    return {(a, b): "region" for a in ranks for b in ranks if a != b}


def among(hosts: BridgedHosts, host: str, *ranks: int) -> bool:
    """Whether exactly these ranks communicate through a host's region."""
    found = {pair: route for pair, route in hosts.routes(host).items() if pair[0] != pair[1]}
    return found == region_routes(*ranks)


def test_a_vm_moves_to_another_host_with_the_job_in_it(hosts: BridgedHosts) -> None:
    build_image(print)
    file = hosts.write()
    first, second = hosts.names
    hosts.call("up", file)
    assert hosts.where() == {"vm0": first, "vm1": first, "vm2": second}
    refusals(hosts)

    program = str(mpi_program(Mpi.MPICH, "soak"))
    job = subprocess.Popen(
        hosts.command("run", "--cluster", NAME, "-n", 3, program, JOB_SECONDS),
        env=hosts.environment(XDG_STATE_HOME=str(hosts.directory / "state")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until("two ranks talk", job, lambda: among(hosts, first, 0, 1))
        assert "a command of this host runs in vm0" in hosts.refused("migrate", "vm0", second)
        moved = hosts.call("migrate", "--cluster", NAME, "vm1", second)
        print(moved.stderr)
        assert f"vm1 is on {second}: the move took" in moved.stderr
        wait_until("the other two talk", job, lambda: among(hosts, second, 1, 2))
        assert hosts.where() == {"vm0": first, "vm1": second, "vm2": second}
        # The VM stays there, and commands enter it there.
        assert "unchanged" in hosts.call("plan", file).stdout
        assert f"vm1 was moved from {first} to {second}" in hosts.call("status", NAME).stdout
        assert hosts.call("exec", "--cluster", NAME, "vm1", "hostname").stdout == "vm1\n"

        # Back, and there again, with the same ranks.
        for host, talking, alone in ((first, (0, 1), second), (second, (1, 2), first)):
            moved = hosts.call("migrate", "--cluster", NAME, "vm1", host)
            print(moved.stderr)
            assert "warning" not in moved.stderr
            wait_until(f"they talk on {host}", job, partial(among, hosts, host, *talking))
            assert among(hosts, alone)
        hosts.call("exec", "--cluster", NAME, "vm2", "sh", "-c", "kill -USR2 $(pidof soak)")
        output, errors = job.communicate(timeout=BOUND)
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            job.communicate()
    assert job.returncode == 0, errors
    (record,) = read_records(output)
    print(json.dumps(record))
    assert record["errors"] == 0
    assert record["sent"] == record["received"] > 100
    print(hosts.call("migrate", "--cluster", NAME, "vm1", first).stderr)
    assert hosts.where() == {"vm0": first, "vm1": first, "vm2": second}
    assert "unchanged" in hosts.call("plan", file).stdout
    assert "was moved" not in hosts.call("status", NAME).stdout

    killed(hosts, file)
    hosts.call("down", NAME)
    assert hosts.left() == []


def refusals(hosts: BridgedHosts) -> None:
    first, second = hosts.names
    assert f"vm0 is already on {first}" in hosts.refused("migrate", "vm0", first)
    assert "is not on the host 'node9'" in hosts.refused("migrate", "vm0", "node9")
    assert f"the cluster {NAME} has no node 'vm9'" in hosts.refused("migrate", "vm9", second)


def killed(hosts: BridgedHosts, file: Path) -> None:
    """The next command repairs a move whose command was killed; a host's last VM moves too."""
    first, second = hosts.names
    migrate = subprocess.Popen(
        hosts.command("migrate", "--cluster", NAME, "vm2", first),
        env=hosts.environment(XDG_STATE_HOME=str(hosts.directory / "state")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert migrate.stderr is not None
    with migrate.stderr:
        for line in migrate.stderr:
            if "have left the region" in line or "no rank is in the region" in line:
                break
        time.sleep(1.0)
        # The command is nsenter's child.
        signal_all(psutil.Process(migrate.pid).children(recursive=True), signal.SIGKILL)
        migrate.wait()
    assert "move/vm2" in hosts.call("plan", file, status=2).stdout
    up = hosts.call("up", file).stderr
    assert f"the move of vm2 to {first} was interrupted" in up, up
    assert "unchanged" in hosts.call("plan", file).stdout
    print("killed, and then", hosts.where()["vm2"])
    assert hosts.call("exec", "--cluster", NAME, "vm2", "hostname").stdout == "vm2\n"
    if hosts.where()["vm2"] == second:
        hosts.call("migrate", "--cluster", NAME, "vm2", first)
    assert set(hosts.where().values()) == {first}
    assert "unchanged" in hosts.call("plan", file).stdout
