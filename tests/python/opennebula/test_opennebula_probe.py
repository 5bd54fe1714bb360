"""What OpenNebula's scheduler learns about a host: on fake cards, and by the script itself."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cards import FakeHost, fake_vfs, igb, mlx5
from opennebula_support import Host, asks

import vicinal.host.system
from vicinal.cli import run
from vicinal.integrations.opennebula.probe import attributes, show
from vicinal.integrations.opennebula.request import LIMITS_FILE


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Host]:
    """A host with the driver and the probe."""
    host = Host(tmp_path)
    assert run(["opennebula", "install", "--remotes", str(host.remotes)]) == 0
    yield host
    for vm in (1, 2):
        host.end(vm)


def fake_host(
    directory: Path, *, devices: str = "ivshmem-plain", qemu: int = 0
) -> vicinal.host.system.Host:
    """A host with a stand-in for QEMU, and huge pages."""
    programs = directory / "programs"
    programs.mkdir(parents=True)
    script = programs / f"qemu-system-{os.uname().machine}"
    script.write_text(f"#!/bin/sh\necho 'name \"{devices}\", bus PCI'\nexit {qemu}\n")
    script.chmod(0o755)
    for size, free in ((2048, 3), (1048576, 1)):
        pages = directory / f"root/sys/kernel/mm/hugepages/hugepages-{size}kB"
        pages.mkdir(parents=True)
        (pages / "nr_hugepages").write_text("4\n")
        (pages / "free_hugepages").write_text(f"{free}\n")
    return vicinal.host.system.Host(root=directory / "root", search=str(programs))


def shown(one: Host, host: vicinal.host.system.Host, cards: FakeHost, records: Path) -> list[str]:
    found = attributes(one.remotes, host=host, vfs=cards, records=records)
    return [show(each) for each in found]


def test_all_that_there_is(one: Host, tmp_path: Path) -> None:
    cards, vfs = fake_vfs(tmp_path / "fake", mlx5(), igb())
    vfs.create("ib0", 2, owner="cloud")
    vfs.create("eth1", 1, owner="cloud")
    vfs.assign("ib0", owner="vm-7")
    (one.remotes / LIMITS_FILE).write_text("REGION_SIZE_MAX=2M\n")
    lines = shown(one, fake_host(tmp_path / "host"), cards, tmp_path / "none")
    assert 'VICINAL_IVSHMEM="YES"' in lines
    assert 'VICINAL_REGIONS="0"' in lines
    assert 'VICINAL_REGION_FREE="2"' in lines
    assert 'VICINAL_VFS="3"' in lines
    assert 'VICINAL_VFS_FREE="2"' in lines
    [card] = [line for line in lines if line.startswith("VICINAL_CARD") and "infiniband" in line]
    assert 'NAMES = "ib0 mlx5_0", MOST = "4", VFS = "2", FREE = "1"' in card
    [given] = [line for line in lines if 'OWNER = "vm-7"' in line]
    assert 'FREE = "NO"' in given
    # The assigned VF has a GUID; the other VF has none yet.
    number, guid = re.findall(r'NUMBER = "(\d)".*GUID = "([0-9a-f:]{23})"', given)[0]
    set_by_card = cards.device("0000:02:00.0") / "sriov" / number / "port"
    assert guid == set_by_card.read_text().strip()
    assert [line for line in lines if "GUID" in line and "VICINAL_VF " in line] == [given]
    assert 'VICINAL_HUGE_PAGES_FREE="1030"' in lines
    assert 'VICINAL_HUGE_PAGES = [ SIZE = "2048", ALL = "4", FREE = "3" ]' in lines
    assert not [line for line in lines if line.startswith("VICINAL_ERROR")]


def test_each_line_is_one_of_a_template(one: Host, tmp_path: Path) -> None:
    """This holds for any name of a card."""
    hostile = mlx5(interface='x" ]\nNAME="y\\')
    cards, _ = fake_vfs(tmp_path / "fake", hostile)
    lines = shown(one, fake_host(tmp_path / "host"), cards, tmp_path / "none")
    value = r'"[^"\\\n]*"'
    form = re.compile(rf"[A-Z_]+(={value}| = \[ [A-Z]+ = {value}(, [A-Z]+ = {value})* \])")
    assert [line for line in lines if not form.fullmatch(line)] == []


def test_what_cannot_be_found_out_is_said(one: Host, tmp_path: Path) -> None:
    """All other attributes are still there."""
    cards, _ = fake_vfs(tmp_path / "fake", igb())
    records = tmp_path / "records"
    records.mkdir(mode=0o777)
    records.chmod(0o777)
    lines = shown(one, fake_host(tmp_path / "host", qemu=1), cards, records)
    errors = [line for line in lines if line.startswith("VICINAL_ERROR")]
    assert len(errors) == 2
    assert "QEMU is missing or does not start" in errors[0]
    assert "is open to other users" in errors[1]
    assert 'VICINAL_VFS="0"' in lines
    assert not [line for line in lines if line.startswith(("VICINAL_IVSHMEM", "VICINAL_REGION"))]


def test_a_qemu_without_ivshmem(one: Host, tmp_path: Path) -> None:
    cards, _ = fake_vfs(tmp_path / "fake")
    host = fake_host(tmp_path / "host", devices="e1000")
    assert 'VICINAL_IVSHMEM="NO"' in shown(one, host, cards, tmp_path / "none")


# --- the script ----------------------------------------------------------------------------


def probe(one: Host) -> subprocess.CompletedProcess[str]:
    """Call the probe as OpenNebula's monitoring does on a host."""
    return subprocess.run(
        [one.probes / "vicinal", "kvm", "0", "node1"],
        input="<MONITOR_CONFIGURATION/>",
        capture_output=True,
        text=True,
        env=one.variables(),
        check=False,
    )


def test_the_script_says_what_regions_there_are(one: Host) -> None:
    assert one.deploy(1, asks(size="8M")).returncode == 0
    assert one.deploy(2, asks(job="other", size="16M")).returncode == 0
    done = probe(one)
    assert done.returncode == 0
    assert done.stderr == ""
    values = dict(re.findall(r'^([A-Z_]+)="(.*)"$', done.stdout, re.M))
    assert (values["VICINAL_REGIONS"], values["VICINAL_REGION_USED"]) == ("2", "24")
    assert int(values["VICINAL_REGION_FREE"]) > 0
    assert "VICINAL_ERROR" not in values, values


def test_the_script_never_fails(one: Host) -> None:
    """OpenNebula would take a failing probe for a failed host."""
    script = one.probes / "vicinal"
    script.write_text(script.read_text().replace(sys.executable, "/nowhere/python"))
    done = probe(one)
    assert done.returncode == 0
    assert done.stdout.startswith('VICINAL_ERROR="the probe ')
    assert done.stdout.count("\n") == 1
