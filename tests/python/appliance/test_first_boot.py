"""The appliance's first boot, for VMs that the tests do not have.

/sys is a fake tree. The commands that would change the system are fakes that log their arguments;
tests/appliance boots a real appliance.
"""

import os
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT

SCRIPT = CHECKOUT / "src/vicinal/cluster/vm/image/appliance/root/usr/lib/vicinal/first-boot"
RECORD = 'echo "$(basename "$0") $*" >>/var/lib/calls'
FAKES = {
    "chgrp": RECORD,
    "chmod": RECORD,
    "apt-get": f"{RECORD}\n! [ -e /var/lib/no-mirror ]",
    "dpkg-query": 'for name; do :; done\ngrep -qx "$name" /var/lib/missing || printf installed',
    "ip": """case "$*" in
*address*) cat /var/lib/addresses ;;
*"-4 route"*) cat /var/lib/route ;;
esac""",
    # The groups of devices come from a file, one for each call; the real stat answers all other
    # calls.
    "stat": """case "$2" in
%G) head -n 1 /var/lib/groups; sed -i 1d /var/lib/groups ;;
*) exec /usr/bin/stat "$@" ;;
esac""",
    "vicinal": """cat <<END
  "summary": {
    "pass": 3,
    "warn": 2,
    "fail": 1,
    "skip": 0
END""",
}


class Vm:
    """A VM with fake devices, on which the script runs without privileges."""

    def __init__(self, directory: Path) -> None:
        self.sys, self.programs, self.state = (directory / n for n in ("sys", "programs", "state"))
        self.devices: list[str] = []
        script = directory / "ours"
        for each in (self.sys / "bus/pci/devices", self.programs, self.state, script):
            each.mkdir(parents=True)
        for name, text in FAKES.items():
            (self.programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.programs / name).chmod(0o755)
        (script / "first-boot").write_bytes(SCRIPT.read_bytes())
        (script / "packages").write_text("libfabric1\nopenmpi-bin\n")
        self._script = script / "first-boot"
        for name in ("calls", "missing", "addresses", "route"):
            (self.state / name).touch()

    def pci(self, name: str, driver: str = "", **attributes: str) -> Path:
        device = self.sys / "bus/pci/devices" / name
        device.mkdir()
        for attribute, value in attributes.items():
            (device / attribute).write_text(f"{value}\n")
        if driver:
            (device / "driver").symlink_to(f"../../drivers/{driver}")
            (self.sys / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        return device

    def boot(self) -> list[str]:
        command = ["bwrap", "--unshare-user", "--uid", "65534", "--ro-bind", "/", "/"]
        command += ["--dev", "/dev", "--bind", str(self.sys), "/sys"]
        command += [
            "--bind",
            str(self.state),
            "/var/lib",
            "--bind",
            str(self.programs),
            "/usr/sbin",
        ]
        for device in self.devices:
            command += ["--dev-bind", "/dev/null", device]
        done = subprocess.run(
            [*command, "sh", str(self._script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, done.stderr
        report = (self.state / "vicinal/first-boot").read_text().splitlines()
        assert done.stdout.splitlines() == [f"vicinal: {line}" for line in report]
        return report

    @property
    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def vm(tmp_path: Path) -> Vm:
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)  # the script runs as another user
    made = Vm(tmp_path)
    made.state.chmod(0o777)
    for file in made.state.iterdir():
        file.chmod(0o666)
    return made


def test_a_vm_that_was_given_nothing_boots(vm: Vm) -> None:
    assert vm.boot() == [
        "region: none; the host gives none to this VM",
        "VFs: none",
        "network: no address",
        "packages: all needed packages are installed",
        "doctor: 3 passed, 2 warnings, 1 failed: see /var/lib/vicinal/doctor.json",
    ]
    assert vm.calls == []


def test_regions_are_handed_to_their_users(vm: Vm) -> None:
    device = vm.pci("0000:00:04.0", vendor="0x1af4", device="0x1110", **{"class": "0x050000"})
    with (device / "resource2").open("wb") as memory:
        memory.truncate(16 << 20)
    vm.pci("0000:00:05.0", vendor="0x1af4", device="0x1000", **{"class": "0x020000"})
    vm.devices = ["/dev/dax0.0"]
    (vm.state / "groups").write_text("mpi\nroot\n")
    report = vm.boot()
    assert report[:2] == [
        "region: ivshmem device 0000:00:04.0, 16 MiB, for the group mpi",
        "region: /dev/dax0.0, for root alone",
    ]
    resource = "/sys/bus/pci/devices/0000:00:04.0/resource2"
    # The udev rule sets the access rights of /dev/dax.
    assert vm.calls == [f"chgrp mpi {resource}", f"chmod 0660 {resource}"]


def test_vfs_are_found_with_their_ports(vm: Vm) -> None:
    kind = {"class": "0x020700"}
    vf = vm.pci("0000:00:06.0", "mlx5_core", vendor="0x15b3", device="0x101e", **kind)
    (vf / "infiniband/mlx5_0").mkdir(parents=True)
    (vf / "net/ib0").mkdir(parents=True)
    port = vm.sys / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("InfiniBand\n")
    vm.pci("0000:00:07.0", "virtio-pci", vendor="0x1af4", device="0x1041", **kind)
    vm.pci("0000:00:08.0", vendor="0x8086", device="0x1520", **{"class": "0x020000"})
    report = vm.boot()
    assert "VF: 0000:00:06.0, driver mlx5_core, known as ib0 mlx5_0" in report
    assert "VF: 0000:00:08.0, driver none, known as nothing" in report
    assert "rdma: mlx5_0 port 1 is 4: ACTIVE, link InfiniBand" in report
    assert not any("0000:00:07.0" in line for line in report)


@pytest.mark.parametrize("mirror", [True, False])
def test_what_is_missing_is_installed_where_there_is_a_network(vm: Vm, mirror: bool) -> None:
    (vm.state / "missing").write_text("openmpi-bin\n")
    (vm.state / "addresses").write_text("2: ens3    inet 10.0.2.15/24 scope global\n")
    (vm.state / "route").write_text("default via 10.0.2.2 dev ens3\n")
    if not mirror:
        (vm.state / "no-mirror").touch()
    report = vm.boot()
    assert "network: ens3 10.0.2.15/24" in report
    if mirror:
        assert "packages: installed openmpi-bin" in report
        assert vm.calls[-1].endswith("install openmpi-bin")
    else:
        said = "packages: could not be installed: openmpi-bin (see /var/lib/vicinal/packages.log)"
        assert said in report
