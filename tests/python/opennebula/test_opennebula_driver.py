"""The driver's scripts, called as one_vmm_exec calls them, with stand-ins for stock scripts."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree

import pytest
from opennebula_support import Host, asks, deployment_file, error_text

from vicinal.integrations.opennebula import driver, vm
from vicinal.integrations.opennebula.call import Call
from vicinal.integrations.opennebula.installation import Installation
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.request import LIMITS_FILE
from vicinal.region import inspect


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with the driver; at the end, nothing of the test's owner must be left."""
    made = Host(tmp_path)
    Installation(made.remotes, Path(sys.executable)).install()
    yield made
    left = list(Path("/dev/shm").glob(f"vicinal-one-{made.owner}-*"))
    for file in left:
        file.unlink()
    assert left == []


def nothing_left(host: Host) -> bool:
    """Whether no region, no record and no lock of a VM is left."""
    there = [] if not host.state.exists() else [each.name for each in host.state.iterdir()]
    return not host.region().exists() and set(there) <= {".lock"}


def test_a_vm_gets_a_region_and_its_end_takes_it_away(host: Host) -> None:
    done = host.deploy(42)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "c0ffee00-0000-4000-8000-000000000001\n"
    status = host.region().stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, 8 << 20)
    state = inspect(host.region(), patience=0)
    assert (state.header.label, state.header.members) == ("job42", 16)
    domain = ElementTree.parse(host.folder(42) / "deployment.0")
    assert domain.find(f"devices/shmem[@name='{host.region().name}']") is not None
    assert host.calls() == [f"deploy {host.folder(42)}/deployment.0 node1 42 node1"]
    assert host.end(42).returncode == 0
    assert host.calls()[1:] == ["cancel one-42 node1 42 node1"]
    assert nothing_left(host)


def test_the_last_vm_of_a_job_takes_the_region_away(host: Host) -> None:
    assert host.deploy(1).returncode == host.deploy(2).returncode == 0
    region = host.region().stat().st_ino
    assert host.end(1, "shutdown").returncode == 0
    assert host.region().stat().st_ino == region
    assert host.deploy(3).returncode == 0
    assert host.end(2).returncode == 0
    assert host.region().stat().st_ino == region
    assert host.end(3, "shutdown").returncode == 0
    assert nothing_left(host)


def test_jobs_have_regions_of_their_own(host: Host) -> None:
    host.deploy(1, asks("one"))
    host.deploy(2, asks("two"))
    assert host.region("one").exists()
    assert host.end(1).returncode == 0
    assert not host.region("one").exists()
    assert host.region("two").exists()
    assert host.end(2).returncode == 0
    assert not host.region("two").exists()


def test_a_vm_that_asks_for_nothing_is_left_to_the_stock_scripts(host: Host) -> None:
    done = host.deploy(7, "")
    assert done.returncode == 0
    assert (host.folder(7) / "deployment.0").read_text() == deployment_file(7, host.owner)
    actions = ["save", "restore", "migrate", "cancel"]
    for action in actions:
        assert host.end(7, action).returncode == 0
    assert [each.split()[0] for each in host.calls()] == ["deploy", *actions]
    assert not host.state.exists()


def test_other_actions_are_the_stock_ones(host: Host) -> None:
    assert host.end(7, "reboot").returncode == 0
    assert [each.split()[0] for each in host.calls()] == ["reboot"]


def test_a_snapshot_of_a_vm_with_a_region_is_refused(host: Host) -> None:
    host.deploy(42)
    done = host.act("snapshot_create", "one-42", "0", vm=42)
    assert done.returncode == 1
    assert error_text(done.stderr).startswith("snapshot_create: Vicinal: VM 42 has a region")
    assert [each.split()[0] for each in host.calls()] == ["deploy"]
    assert host.end(42).returncode == 0
    assert nothing_left(host)


@pytest.mark.parametrize("how", ["fail", "fail-after"])
def test_a_deploy_that_fails_leaves_a_region_where_the_vm_runs(host: Host, how: str) -> None:
    done = host.deploy(42, how=how)
    assert done.returncode == 1
    assert done.stderr.endswith("Could not do it\n" if how == "fail" else "Could not finish\n")
    assert host.region().exists() is (how == "fail-after")
    if how == "fail-after":
        assert host.end(42).returncode == 0
    assert nothing_left(host)


def test_a_deploy_that_a_signal_ends_has_the_status_of_a_shell(host: Host) -> None:
    assert host.deploy(42, how="ended").returncode == 128 + signal.SIGTERM
    assert nothing_left(host)


def test_a_cancel_that_fails_keeps_the_region(host: Host) -> None:
    host.deploy(42)
    assert host.end(42, how="fail").returncode == 1
    assert host.region().exists()
    assert host.end(42).returncode == 0
    assert nothing_left(host)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("<VICINAL_REGOIN/>", "write VICINAL_REGION"),
        (asks("../../../etc/cron.d/x"), "lowercase letters"),
        (asks("a\nERROR MESSAGE ------>8--\nb"), "lowercase letters"),
        (asks(size="1T"), "such as 64M"),
        (asks(size="2G"), "REGION_SIZE_MAX"),
    ],
)
def test_a_template_with_a_fault_starts_nothing(host: Host, asked: str, said: str) -> None:
    done = host.deploy(42, asked)
    assert done.returncode == 1
    assert said in error_text(done.stderr)
    assert len(error_text(done.stderr).splitlines()) == 1
    assert host.calls() == []
    assert nothing_left(host)


def test_where_scripts_have_no_way_to_tell_it_is_told_plainly(host: Host) -> None:
    """OpenNebula 7 takes every line that does not belong to its log for the cause."""
    (host.remotes / "scripts_common.sh").write_text('function error_message { echo "$1" 1>&2; }\n')
    done = host.deploy(42, "<VICINAL_REGOIN/>")
    assert done.stderr.startswith("deploy: Vicinal: 'VICINAL_REGOIN' is no attribute")
    (host.remotes / "scripts_common.sh").unlink()
    assert host.deploy(42, "<VICINAL_REGOIN/>").stderr == done.stderr


def test_vms_of_a_job_have_to_ask_for_the_same(host: Host) -> None:
    host.deploy(1)
    done = host.deploy(2, asks(size="16M"))
    assert "the same SIZE and MEMBERS" in error_text(done.stderr)
    assert host.region().stat().st_size == 8 << 20
    assert host.end(1).returncode == 0


def test_an_owner_has_no_more_than_is_allowed(host: Host) -> None:
    (host.remotes / "etc/vmm/vicinal/vicinal.conf").write_text("USER_SIZE_MAX=16M\n")
    assert host.deploy(1, asks("one")).returncode == 0
    assert host.deploy(2, asks("two")).returncode == 0
    assert "USER_SIZE_MAX" in error_text(host.deploy(3, asks("three")).stderr)
    host.end(1)
    assert host.deploy(3, asks("three")).returncode == 0
    host.end(2)
    host.end(3)


def test_a_region_that_has_no_room_is_refused(host: Host) -> None:
    size = 1 << (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")).bit_length()
    if size > 512 << 30:
        pytest.skip("this machine has room for every region")
    (host.remotes / "etc/vmm/vicinal/vicinal.conf").write_text(
        "REGION_SIZE_MAX=99999G\nUSER_SIZE_MAX=99999G\n"
    )
    members = "<MEMBERS>512</MEMBERS>"
    done = host.deploy(42, asks(size=f"{size >> 30}G", more=members))
    assert "free" in error_text(done.stderr)
    assert host.calls() == []
    assert nothing_left(host)


@pytest.mark.parametrize(
    ("devices", "named", "refused"),
    [
        ("virtio-net", True, True),
        ("virtio-net", False, False),  # libvirt checks a QEMU that is not this host's
        ("ivshmem-plain", True, False),
    ],
)
def test_a_qemu_without_the_device_is_refused_before_anything_is_made(
    host: Host, monkeypatch: pytest.MonkeyPatch, devices: str, named: bool, refused: bool
) -> None:
    """The test uses a stand-in for this host's QEMU, which lists its devices."""
    qemu = host.directory / f"programs/qemu-system-{os.uname().machine}"
    qemu.parent.mkdir()
    qemu.write_text(f"#!/bin/sh\necho 'name \"{devices}\", bus PCI'\n")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", str(qemu.parent), prepend=os.pathsep)
    file = host.prepare(42, asks())
    given = deployment_file(42, host.owner)
    other = qemu if named else Path(sys.executable)
    given = given.replace("/usr/bin/qemu-system-x86_64", str(other))
    done = host.act("deploy", str(file), "node1", vm=42, given=given)
    assert done.returncode == refused
    if refused:
        said = error_text(done.stderr)
        assert said.startswith(f"deploy: Vicinal: {qemu} of this host has no ivshmem-plain")
        assert "VICINAL_IVSHMEM" in said
        assert host.calls() == []
    assert host.region().exists() is not refused
    assert host.end(42).returncode == 0
    assert nothing_left(host)


def test_somebody_elses_file_in_the_regions_place_is_refused(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    host.region().symlink_to(target)
    done = host.deploy(42)
    assert "exists already" in error_text(done.stderr)
    assert target.read_text() == "precious"
    assert host.region().is_symlink()
    host.region().unlink()
    assert nothing_left(host)


def test_a_region_that_was_exchanged_is_refused(host: Host, tmp_path: Path) -> None:
    host.deploy(1)
    host.region().unlink()
    assert "is missing" in error_text(host.deploy(2).stderr)
    host.region().symlink_to(tmp_path)
    assert "not the file" in error_text(host.deploy(2).stderr)
    host.region().unlink()
    assert host.end(1).returncode == 0
    assert nothing_left(host)


def test_records_that_others_could_write_are_refused(host: Host, tmp_path: Path) -> None:
    host.state.mkdir()
    host.state.chmod(0o777)
    assert "open to other users" in error_text(host.deploy(42).stderr)
    host.state.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    host.state.symlink_to(tmp_path / "elsewhere")
    assert "is not a directory" in error_text(host.deploy(42).stderr)
    assert host.calls() == []


@pytest.mark.parametrize("action", ["save", "migrate", "snapshot_create"])
@pytest.mark.parametrize("wrong", ["open", "no record"])
def test_records_that_are_not_believed_are_no_reason_to_keep_other_vms_where_they_are(
    host: Host, action: str, wrong: str
) -> None:
    """Every user of the host may create that directory, and libvirt keeps a VM with a region."""
    host.state.mkdir(mode=0o700)
    if wrong == "open":
        host.state.chmod(0o777)
    else:
        (host.state / "5-job42.json").write_text("{")
    shutil.copy(host.remotes / "vmm/kvm/save", host.remotes / "vmm/kvm/snapshot_create")
    done = host.act(action, "one-7", "node2", "node1", vm=7)
    assert done.returncode == 0
    assert f"ERROR: {action}: Vicinal: it is unknown whether VM 7 has a region: " in done.stderr
    assert host.calls() == [f"{action} one-7 node2 node1 7 node1"]


@pytest.mark.parametrize("wrong", ["{", "null", "[]", '{"vms": [42]}'])
def test_a_vm_is_ended_whatever_the_records_say(host: Host, wrong: str) -> None:
    host.deploy(42)
    record = next(host.state.glob("*.json"))
    text = record.read_text()
    record.write_text(wrong)
    done = host.end(42)
    assert done.returncode == 0
    assert done.stderr.startswith(
        "ERROR: cancel: Vicinal: the VM's region stays until the next action"
    )
    assert host.calls()[-1].startswith("cancel")
    assert "is not a record (" in error_text(host.deploy(43).stderr)
    record.write_text(text)
    assert host.deploy(43, asks("other")).returncode == 0  # the next action cleans up
    assert host.end(43).returncode == 0
    assert nothing_left(host)


def test_an_action_goes_on_though_another_vm_cannot_get_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other VM's limits cannot be read, but libvirt answers."""
    monkeypatch.setattr(vm, "connect", lambda _: nullcontext())
    (tmp_path / "remotes" / LIMITS_FILE).mkdir(parents=True)
    call = Call(tmp_path / "remotes/vmm/vicinal/cancel", ("one-42", "node1", "42", "node1"))
    known = Records(tmp_path / "state", frozenset)
    known.lacks(41, something=True)
    driver._repair(call, known)
    said = capsys.readouterr().err
    assert said.startswith(
        "ERROR: cancel: Vicinal: the repair of other VMs is left to the next action"
    )
    assert "Is a directory" in said


def test_without_libvirt_nothing_is_made(host: Host) -> None:
    settings = host.remotes / "etc/vmm/kvm/kvmrc"
    settings.write_text("export LIBVIRT_URI=test:///no/such/file\n")
    done = host.deploy(42)
    assert "does not list the VMs that run here" in error_text(done.stderr)
    assert host.calls() == []
    assert nothing_left(host)


def test_a_vm_that_ended_by_itself_is_cleared_up_by_who_comes_next(host: Host) -> None:
    host.deploy(1)
    host.deploy(2, asks("other"))
    host.lose(1)
    assert host.end(2).returncode == 0
    assert nothing_left(host)


@pytest.mark.parametrize("how", ["killed", "kill-after"])
def test_a_driver_that_is_killed_leaves_nothing_for_good(host: Host, how: str) -> None:
    done = host.deploy(42, how=how)
    assert done.returncode == -signal.SIGKILL
    assert host.region().exists()
    if how == "killed":
        host.deploy(43, asks("other"))
        host.end(43)
    else:  # the VM runs: it has its region, and ends like any other
        assert host.deploy(43).returncode == 0
        assert host.end(43).returncode == 0
        assert host.region().exists()
        assert host.end(42).returncode == 0
    assert nothing_left(host)


def begin(host: Host, how: str) -> "subprocess.Popen[bytes]":
    """Deploy VM 1 up to the moment when its stock script works."""
    for name in ("began", "gate"):
        os.mkfifo(host.directory / name)
    file = host.prepare(1, asks())
    given = host.directory / "given"
    given.write_text(deployment_file(1, host.owner))
    with given.open() as document:
        process = subprocess.Popen(
            host.command("deploy", str(file), "node1", vm=1),
            stdin=document,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=host.variables(how),
        )
    (host.directory / "began").read_bytes()
    return process


@pytest.mark.parametrize("killed", [False, True])
def test_a_region_is_kept_for_a_vm_that_is_being_started(host: Host, killed: bool) -> None:
    """The stock script is still working, so libvirt does not know the VM yet."""
    process = begin(host, "wait")
    if killed:
        process.kill()
        process.wait()
    assert host.deploy(2).returncode == 0
    assert host.end(2).returncode == 0
    assert host.region().exists()
    (host.directory / "gate").write_text("go")
    said, _ = process.communicate()  # returns when the stock script has ended, too
    assert process.returncode == (-signal.SIGKILL if killed else 0)
    assert said.startswith(b"c0ffee")
    assert host.end(1).returncode == 0
    assert nothing_left(host)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_stock_script_and_takes_the_region_away(host: Host, number: int) -> None:
    process = begin(host, "hang")
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    assert nothing_left(host)


@pytest.mark.parametrize("size", [4 << 20, 16 << 20])
def test_a_region_whose_size_was_changed_is_refused(host: Host, size: int) -> None:
    host.deploy(1)
    os.truncate(host.region(), size)
    assert "not the file" in error_text(host.deploy(2).stderr)
    assert host.end(1).returncode == 0
    assert nothing_left(host)
