"""Steps that test_cluster_interfaces.py runs in a network namespace; each step prints a JSON line.

The kernel, the containers and the interface (one end of a veth pair) are real. A fake sysfs says
that the interface belongs to a PCI card. The sysfs names the interface as long as the interface is
in this network namespace.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Interface
from pathlib import Path

from fake_cards import FakeHelper, FakeHost, igb

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.cluster import ContainerCluster, remove_cluster
from vicinal.cluster.nodes.container.passthrough import show_devices
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.cluster.plan.state import sole_command
from vicinal.cluster.resources.interfaces import InterfaceResource
from vicinal.host.vf.operations import Vfs

CARD = "0000:01:00.0"
CABLE, END = "eth7", "eth8"
DEVICE = Path("/dev/kmsg")


class Host(FakeHost):
    """A host whose card has an interface of this network namespace, under either of its names."""

    def names(self, address: str, kind: str) -> list[str]:
        del address  # there is only one card
        return sorted({CABLE, "eth1"} & set(here())) if kind == "net" else []


def here() -> list[str]:
    lines = Path("/proc/net/dev").read_text().splitlines()
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def say(step: str, **found: object) -> None:
    print(json.dumps({"step": step, **found}), flush=True)


def main(base: Path, name: str) -> None:
    subprocess.run(["ip", "link", "add", CABLE, "type", "veth", "peer", "name", END], check=True)
    subprocess.run(["ip", "link", "set", END, "up"], check=True)
    host = Host(base / "fake", igb())
    vfs = Vfs(host, FakeHelper(host))
    base = base / "containers"
    node = ContainerSpec(cluster=name, name="node0")

    def make() -> ContainerCluster:
        made, _ = ContainerCluster.create(name, base)
        made.create_node(node)
        return made

    def inside(step: str, *command: str) -> None:
        done = subprocess.run(
            ContainerCluster.open(name, base).exec_command("node0", command),
            capture_output=True,
            text=True,
            check=False,
        )
        say(step, status=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def interface(device: str = CARD) -> InterfaceResource:
        address = IPv4Interface("10.7.0.1/24")
        return InterfaceResource(name, "node0", device, address, base, vfs)

    def state(step: str) -> None:
        observed = interface().observe()
        say(step, condition=observed.condition, why=observed.why, here=here())

    def attempt(step: str, action: Callable[[], None]) -> None:
        try:
            action()
            say(step, error="")
        except VicinalError as error:
            say(step, error=str(error))

    cluster = make()
    with sole_command(name):
        state("before")
        attempt("no card", interface("0000:09:00.0").create)
        interface_directory = host.device(CARD) / "net" / CABLE
        host.files(interface_directory, flags="0x1003")
        attempt("in use", interface().create)
        host.files(interface_directory, flags="0x1002")
        attempt("create", interface().create)
        state("created")
        inside("addresses", "ip", "-j", "address", "show", "dev", "eth1")
        attempt("stop", interface().stop)
        state("stopped")
        attempt("start", interface().start)
        state("started")
        process = cluster.process_of("node0")
        assert process is not None
        show_devices(process, [DEVICE])
        inside("device", "stat", "-c", "%t %T", str(DEVICE))
        attempt("remove", interface().remove)
        state("removed")
        attempt("create again", interface().create)
        # Simulate a kill. The kernel deletes a veth interface with its namespace, but not a card's
        # interface.
        head = json.loads((base / name / "head.json").read_text())["process"]
        os.kill(head, signal.SIGKILL)
        while Path(f"/proc/{head}/root/run/netns/node0").exists():
            time.sleep(0.01)
        state("without its head")
    remove_cluster(name, base)


main(Path(sys.argv[1]), sys.argv[2])
