"""`vicinal opennebula`: the driver among OpenNebula's scripts, and files that must not change."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from opennebula_support import Host

from vicinal.cli import run
from vicinal.integrations.opennebula.installation import (
    ACTIONS,
    NETWORK_ACTIONS,
    ONED_CONF,
    Installation,
    check_configuration,
)
from vicinal.integrations.opennebula.request import LIMITS_FILE

PROBE = "im/kvm-probes.d/host/system/vicinal"


@pytest.fixture
def remotes(tmp_path: Path) -> Path:
    """OpenNebula's scripts."""
    return Host(tmp_path).remotes


def call(name: str, remotes: Path, *more: str) -> int:
    return run(["opennebula", name, "--remotes", str(remotes), *more])


def tree(directory: Path) -> dict[str, str]:
    """All files below a directory: each path with the file's content or the link's target."""
    return {
        str(file.relative_to(directory)): f"-> {file.readlink()}"
        if file.is_symlink()
        else file.read_text()
        for file in directory.rglob("*")
        if file.is_symlink() or file.is_file()
    }


def test_it_is_installed_checked_and_removed(
    remotes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(remotes)
    assert call("check", remotes) == 1
    assert "vmm/vicinal is missing" in capsys.readouterr().err
    assert call("install", remotes) == 0
    shown = capsys.readouterr().out
    assert 'ARGUMENTS      = "-t 15 -r 0 vicinal -p"' in shown
    assert "onehost sync" in shown
    variant = remotes / "vmm/vicinal"
    assert {file.name for file in variant.iterdir() if not file.is_symlink()} == set(ACTIONS)
    assert (variant / "reboot").resolve() == (remotes / "vmm/kvm/reboot").resolve()
    assert os.access(remotes / PROBE, os.X_OK)
    for action in NETWORK_ACTIONS:
        assert os.access(remotes / "vnm/vicinal" / action, os.X_OK)
    assert call("check", remotes) == 0
    assert call("remove", remotes) == 0
    assert tree(remotes) == before


def test_installed_again_it_is_the_same(remotes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("install", remotes)
    made = {file: file.lstat().st_ino for file in remotes.rglob("*")}
    capsys.readouterr()
    assert call("install", remotes) == 0
    assert capsys.readouterr().out.startswith("everything is installed already\n")
    assert {file: file.lstat().st_ino for file in remotes.rglob("*")} == made


def test_what_is_old_stays_until_what_is_new_is_there(
    remotes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk, the old installation still works."""
    call("install", remotes)
    old = remotes / "vmm/vicinal/an-action-of-before"
    old.write_text("# made by `vicinal opennebula install`\nexec true\n")
    (remotes / PROBE).unlink()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Installation, "_put", full)
    assert call("install", remotes) == 1
    assert old.is_file()
    monkeypatch.undo()
    assert call("install", remotes) == 0
    assert not old.exists()


def test_it_follows_updates_of_opennebula(
    remotes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("install", remotes)
    (remotes / "vmm/kvm/new_action").write_text("#!/bin/bash\n")
    (remotes / "vmm/kvm/reboot").unlink()
    capsys.readouterr()
    assert call("check", remotes) == 1
    shown = capsys.readouterr().err
    assert "new_action is missing" in shown
    assert "reboot belongs to a script that OpenNebula no longer has" in shown
    assert call("install", remotes) == 0
    assert call("check", remotes) == 0
    assert (remotes / "vmm/vicinal/new_action").is_symlink()
    assert not (remotes / "vmm/vicinal/reboot").is_symlink()


def test_a_script_that_was_changed_is_seen_and_mended(
    remotes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("install", remotes)
    script = remotes / "vmm/vicinal/deploy"
    script.write_text(script.read_text() + "echo more\n")
    assert call("check", remotes) == 1
    assert "deploy has other contents" in capsys.readouterr().err
    assert call("install", remotes, "--python", "/opt/vicinal/bin/python") == 0
    assert "exec '/opt/vicinal/bin/python' -I" in script.read_text()
    assert call("check", remotes, "--python", "/opt/vicinal/bin/python") == 0
    assert call("check", remotes) == 1


@pytest.mark.parametrize("name", ["install", "check", "remove"])
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_not_ours_stays(
    remotes: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = remotes / "vmm/vicinal"
    if kind == "link":
        variant.symlink_to("kvm")
    else:
        variant.mkdir()
        strange = variant / "deploy"
        strange.mkdir() if kind == "folder" else strange.write_text("#!/bin/bash\n")
    before = tree(remotes)
    assert call(name, remotes) == 1
    assert "is not Vicinal's" in capsys.readouterr().err
    assert tree(remotes) == before


def test_a_host_may_have_copies_for_links(remotes: Path) -> None:
    call("install", remotes)
    link = remotes / "vmm/vicinal/reboot"
    link.unlink()
    shutil.copy(remotes / "vmm/kvm/reboot", link)
    assert call("check", remotes) == 0
    (remotes / "vmm/kvm/reboot").write_text("#!/bin/bash\n")
    assert call("check", remotes) == 1


def test_limits_that_were_changed_stay(remotes: Path) -> None:
    call("install", remotes)
    (remotes / LIMITS_FILE).write_text("REGION_SIZE_MAX=64M\n")
    call("install", remotes)
    call("remove", remotes)
    assert (remotes / LIMITS_FILE).read_text() == "REGION_SIZE_MAX=64M\n"


def test_a_probe_that_is_somebody_elses_stays(
    remotes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (remotes / PROBE).write_text("#!/bin/sh\n")
    before = tree(remotes)
    for name in ("install", "remove"):
        assert call(name, remotes) == 1
        assert f"{PROBE} is not Vicinal's" in capsys.readouterr().err
    assert tree(remotes) == before


def test_limits_with_a_slip_are_seen(remotes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("install", remotes)
    (remotes / LIMITS_FILE).write_text("REGION=64M\n")
    assert call("check", remotes) == 1
    assert "line 1: 'REGION=64M' is no setting" in capsys.readouterr().err


def test_where_opennebula_is_not_there_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("install", tmp_path) == 1
    assert "name the folder of OpenNebula's scripts with --remotes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("python", ["python3", "/opt/a'; rm -rf /; '/python"])
def test_a_python_that_no_script_can_name_is_refused(remotes: Path, python: str) -> None:
    assert call("install", remotes, "--python", python) == 1
    assert not (remotes / "vmm/vicinal").exists()


def test_oneds_settings_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "oned.conf"
    assert check_configuration(file) is None
    file.write_text('VM_MAD = [\n NAME = "kvm" ]\n# NAME = "vicinal"\n')
    assert "no VM_MAD" in (check_configuration(file) or "")
    file.write_text(
        'VM_MAD = [\n    NAME           = "vicinal"\n]\nVN_MAD_CONF = [ NAME = "fw" ]\n'
    )
    assert "no VN_MAD_CONF" in (check_configuration(file) or "")
    file.write_text(ONED_CONF)
    assert check_configuration(file) is None


@pytest.mark.parametrize("name", ["install", "remove"])
def test_what_a_killed_install_has_left_is_taken_away(remotes: Path, name: str) -> None:
    before = tree(remotes)
    call("install", remotes)
    whole = tree(remotes)
    for file in (
        "vmm/vicinal/.deploy.part",
        "vnm/vicinal/.pre.part",
        f"{LIMITS_FILE.parent}/.{LIMITS_FILE.name}.part",
    ):
        (remotes / file).write_text("")
    assert call(name, remotes) == 0
    if name == "install":
        assert call("remove", remotes) == 0
    assert tree(remotes) == before != whole


@pytest.mark.parametrize("text", [b"# gr\xf6\xdfer\nUSER_SIZE_MAX=8G\n", b"USER_SIZE_MAX=8G\n"])
def test_limits_that_were_changed_stay_in_whatever_encoding(remotes: Path, text: bytes) -> None:
    call("install", remotes)
    (remotes / LIMITS_FILE).write_bytes(text)
    for name in ("install", "check", "remove"):
        assert call(name, remotes) == 0
        assert (remotes / LIMITS_FILE).read_bytes() == text


def test_what_else_is_beside_the_limits_stays(remotes: Path) -> None:
    call("install", remotes)
    other = remotes / LIMITS_FILE.parent / "notes"
    other.touch()
    assert call("remove", remotes) == 0
    assert list(other.parent.iterdir()) == [other]


def test_a_wrong_limit_is_named(remotes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("install", remotes)
    (remotes / LIMITS_FILE).write_text("\nUSER_SIZE_MAX=lots\n")
    assert call("check", remotes) == 1
    assert f"{LIMITS_FILE}, line 2: 'lots' is not a size" in capsys.readouterr().err
