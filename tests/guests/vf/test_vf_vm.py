"""A VF of an emulated card (igb) that a VM has by VFIO, with the real kernel.

The guest that runs vf_vm_inside.py is emulated, and so is the VM in it. Real are
both kernels, vfio-pci and the IOMMU's driver, igb and igbvf, QEMU, root's work for a job, and how a
supervisor starts a VM and plugs in its VF. Slurm is absent.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from vf_guest import Work, run_inside
from vf_vm import MEMORY_MIB, vm_files

from vicinal.cluster.vm.image.building import find_image
from vicinal.cluster.vm.snapshot.hardware import PassedVf
from vicinal.cluster.vm.snapshot.starting import GuestMake, start_guests

Steps = dict[str, dict[str, Any]]
MODULES = ("igb", "igbvf", "vfio_iommu_type1", "vfio_pci")
USER = 1000


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    directory = tmp_path_factory.mktemp("vm")
    work = Work(
        "vf-vm",
        MODULES,
        ("vf_vm_inside.py",),
        # With a single permanent processor, QEMU 10 emulates the 16-byte compare-and-swap of the
        # inner QEMU in another way, and the VM's kernel double-faulted in its allocator.
        processors="2",
        files=vm_files(directory),
        memory=1536,
    )
    lines = run_inside(directory, print, work)
    found = {line["step"]: line for line in lines}
    print({name: step["uptime"] for name, step in found.items()})
    assert "end" in found, f"the last step was {lines[-1]}"
    return found


def vf(steps: Steps, step: str) -> dict[str, Any]:
    found: dict[str, Any] = steps[step]["card"]["vfs"][0]
    return found


def test_root_grants_it_to_the_job_s_user(steps: Steps) -> None:
    granted = vf(steps, "granted")
    assert granted["driver"] == "vfio-pci"
    assert granted["owner"] == "slurm-7"
    bounds = ("vlan", "spoofchk", "trust")
    assert [granted["settings"][name] for name in bounds] == ["5", "on", "off"]
    assert steps["group"] == steps["group"] | {"user": USER, "mode": 0o600}
    assert "Permission denied" in steps["another user"]["errors"]


def test_a_user_who_may_not_lock_enough_memory(steps: Steps) -> None:
    error = steps["too little memory to lock"]["error"]
    assert "guest node0 did not get 0000:" in error
    assert "Cannot allocate memory" in error
    assert "lock as much memory as the guest has (ulimit -l)" in error


def test_the_vm_has_it_with_the_card_s_address_and_the_file_s(steps: Steps) -> None:
    console = steps["vm"]["console"]
    assert f"link/ether {vf(steps, 'granted')['settings']['mac']}" in console
    assert "inet 10.9.0.2/24 scope global eth1" in console
    assert "/sys/class/net/eth1/device/driver -> ../../../bus/pci/drivers/igbvf" in console
    status = dict(line.split(":\t", 1) for line in steps["QEMU"]["status"].splitlines())
    assert status["Uid"].split() == [str(USER)] * 4
    assert int(status["VmLck"].split()[0]) >= MEMORY_MIB << 10
    assert "a program has it open through vfio-pci" in vf(steps, "in use")["use"]


def test_it_talks_to_another_vf_of_the_card(steps: Steps) -> None:
    console = steps["vm"]["console"]
    assert "1 packets transmitted, 1 packets received" in console
    assert "vicinal-guest: ready" in console


def test_it_is_released_as_it_was_when_qemu_is_killed(steps: Steps) -> None:
    assert vf(steps, "killed")["driver"] == "vfio-pci"
    assert steps["notes"]["notes"] == []
    before, after = vf(steps, "before"), vf(steps, "after")
    for found in (before, after):
        del found["settings"]["mac"]  # it has none, and its driver draws a new one each time
    assert json.dumps(after) == json.dumps(before)


def test_who_holds_it_open_is_ended_with_the_job(steps: Steps) -> None:
    assert steps["held"]["said"] == "opened\n"
    assert steps["holder"]["status"] == -9
    assert steps["notes of what was held"]["notes"] == []
    assert vf(steps, "after it was held")["driver"] == "igbvf"


# --- the image that VMs of jobs boot --------------------------------------------------


class Emulated(PassedVf):
    """An emulated card, plugged in instead of a VF."""

    @property
    def device(self) -> dict[str, object]:
        return {"driver": "virtio-net-pci", "mac": self.mac, "romfile": ""}


def test_the_image_s_drivers_are_loaded_and_names_are_as_they_are_told(tmp_path: Path) -> None:
    """A card already has the first VF's name, and is renamed."""
    drivers = sorted(find_image(print).drivers())
    assert drivers == ["ixgbevf", "mlx4_core", "mlx5_core"]
    vfs = tuple(
        Emulated("0000:00:00.0", driver, f"02:00:00:00:00:7{number}", f"eth{number}", address)
        for number, (driver, address) in enumerate(
            zip(drivers, ("10.9.0.1/24", None, None), strict=True)
        )
    )
    makes = [GuestMake("a", vfs=vfs), GuestMake("b")]
    started = start_guests(makes, tmp_path, None, say=print)
    try:
        shell = started[0].shell
        show = "ip address; cat /proc/modules; ssh b hostname"
        done = shell.run(["sh", "-c", show])
        links = r"^\d+: (eth\d): .*,UP.*\n +link/ether (02:00:\S+)"
        assert dict(re.findall(links, done.stdout, re.MULTILINE)) == {
            vf.interface: vf.mac for vf in vfs
        }
        assert "inet 10.9.0.1/24 scope global eth0" in done.stdout
        for module in ("ixgbevf", "mlx4_en", "mlx5_core"):
            assert f"\n{module} " in done.stdout
        assert done.stdout.endswith("\nb\n"), done.stderr  # through the wire's card
    finally:
        for guest in started:
            guest.stop()
