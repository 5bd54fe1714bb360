"""Detection of a subnet manager, in a simulated InfiniBand subnet.

ibsim simulates a switch and two hosts. opensm is a real subnet manager, here for management without
data. The files that ibsim shows for a host's port become the port of a fake card (fake_cards.py).
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cards import FakeHost, mlx5
from unpacked_packages import unpacked

from vicinal.host.vf.infiniband import cause_of_no_port
from vicinal.host.vf.sysfs import Port, read_ports

BOUND = 60.0  # seconds; a guard against hangs
NET = """
Switch 8 "switch"
[1] "manager"[1]
[2] "host"[1]

Hca 1 "manager"
[1] "switch"[1]

Hca 1 "host"
[1] "switch"[2]
"""
# ibsim shows its files only to the process that reads them, and only while that process lives.
SNAPSHOT = """
import os, shutil, sys
os.listdir("/sys/class/infiniband")
shutil.copytree(f"sys-{os.getpid()}/sys/class/infiniband", sys.argv[1])
"""


class Subnet:
    """A simulated subnet, and programs on its hosts."""

    def __init__(self, directory: Path, tools: Path) -> None:
        self.directory = directory
        programs = [str(tools / "usr/sbin"), str(tools / "usr/bin")]
        (directory / "net").write_text(NET)
        directories = (tools / "usr/lib", Path("/usr/lib"))
        libraries = [
            each
            for directory in directories
            for each in directory.glob("*/umad2sim/libumad2sim.so")
        ]
        self._library = str(libraries[0])
        self.environment = os.environ | {
            "PATH": os.pathsep.join([*programs, os.environ["PATH"], "/usr/sbin"]),
            "LD_LIBRARY_PATH": str(tools / "usr/lib/x86_64-linux-gnu"),
            "IBSIM_SOCKNAME": f"vicinal-{os.getpid()}",  # other tests may run one at the same time
            "OSM_TMP_DIR": str(directory),
        }
        self.environment["OSM_CACHE_DIR"] = str(directory)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, host: str | None = None) -> None:
        """Start a program in the background; its input stays open."""
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self._environment(host),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._running.append(process)

    def run(self, *command: str, host: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment(host),
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )

    def stop(self) -> None:
        for process in reversed(self._running):
            process.kill()
            process.communicate()

    def _environment(self, host: str | None) -> dict[str, str]:
        if host is None:
            return self.environment
        return self.environment | {"SIM_HOST": host, "LD_PRELOAD": self._library}


@pytest.fixture
def subnet(tmp_path: Path) -> Iterator[Subnet]:
    directory = tmp_path / "subnet"
    directory.mkdir()
    running = Subnet(directory, unpacked("subnet"))
    try:
        running.start("ibsim", "-s", "net")
        yield running
    finally:
        running.stop()


def port_of(subnet: Subnet, host: FakeHost) -> Port:
    """The simulated host's current port, as the port of the fake card."""
    target = host.device("0000:02:00.0") / "infiniband"
    shutil.rmtree(target, ignore_errors=True)
    deadline = time.monotonic() + BOUND
    while (done := subnet.run(sys.executable, "-c", SNAPSHOT, str(target), host="host")).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)
    (port,) = read_ports(host, "0000:02:00.0")
    return port


def test_a_subnet_manager_is_noticed(subnet: Subnet, tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "host-root", mlx5(vf_state="1: DOWN"))
    vf = host.vf(host.cards["0000:02:00.0"], 0)
    host.write(host.device("0000:02:00.0") / "sriov_numvfs", "1")
    own = host.device("0000:02:00.0") / "sriov/0"
    host.files(own, node="00:11:22:33:44:55:66:77", port="00:11:22:33:44:55:66:78", policy="Follow")
    host.write(host.device(vf) / "driver/unbind", vf)
    host.write(host.sysfs / "bus/pci/drivers_probe", vf)

    before = port_of(subnet, host)
    assert (before.state, before.physical_state, before.subnet_manager) == ("INIT", "LinkUp", 0)
    cause, remedy = cause_of_no_port(host, "0000:02:00.0", vf, 0)
    assert cause.startswith("there is no subnet manager: the card's own port ibsim0/1 is INIT")
    assert remedy == "start one in the subnet, such as opensm"

    subnet.start("opensm", "-f", "opensm.log", host="manager")
    deadline = time.monotonic() + BOUND
    while (after := port_of(subnet, host)).state != "ACTIVE":
        assert time.monotonic() < deadline, after
        time.sleep(0.2)
    assert after.subnet_manager > 0
    assert after.guid == before.guid != ""
    cause, _ = cause_of_no_port(host, "0000:02:00.0", vf, 0)
    assert "the subnet manager does not serve virtual functions" in cause

    # The port's GUIDs are those by which the subnet knows the host.
    found = subnet.run("ibnetdiscover", host="manager").stdout
    listed = {
        f"{int(text, 16):016x}" for text in re.findall(r"^caguid=0x(\w+)$", found, re.MULTILINE)
    }
    assert len(listed) == 2, found
    assert after.node_guid.replace(":", "") in listed
