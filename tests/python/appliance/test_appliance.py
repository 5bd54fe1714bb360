"""Contents of the appliance, kept copies and messages. Nothing is downloaded or booted.

A stand-in replaces mmdebstrap here; tests/appliance builds a real appliance and boots it.
"""

import json
import os
import shutil
import struct
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_support import CHECKOUT, Vicinal, error_line

from vicinal import cli, command_app
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm import image_commands
from vicinal.cluster.vm.image.appliance import bootstrap, build, tools
from vicinal.cluster.vm.image.appliance.boot_loader import install_bios, install_uefi
from vicinal.cluster.vm.image.appliance.build import contents, write_archive
from vicinal.cluster.vm.image.appliance.disk_layout import (
    BOOT_OFFSET,
    DISK_SIZE,
    FIRMWARE_OFFSET,
    ROOT_OFFSET,
    ROOT_SIZE,
    SECTOR,
    Identity,
    make_disk,
)
from vicinal.cluster.vm.image.packages import PackageStore
from vicinal.cluster.vm.snapshot import store

SOURCES = ["deb mirror stable main"]


def test_what_is_put_in_is_roots_and_has_no_date(tmp_path: Path) -> None:
    write_archive(tmp_path / "files.tar", contents())
    with tarfile.open(tmp_path / "files.tar") as tar:
        entries = {entry.name: entry for entry in tar}
        rule = tar.extractfile("etc/udev/rules.d/70-vicinal.rules")
        assert rule is not None
        assert b"chgrp mpi" in rule.read()
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, 0)}
    assert entries["usr/lib/vicinal/first-boot"].mode == 0o755
    assert entries["usr/bin/vicinal"].mode == 0o755
    assert entries["etc/environment"].mode == 0o644
    assert entries["usr/lib/vicinal"].isdir()
    names = set(entries)
    site = "usr/lib/vicinal/site-packages"
    libraries = (
        "libvicinal-fi.so",
        "libvicinal-heap.so",
        "libvicinal-mpi.so",
        "libvicinal-pairs.so",
    )
    assert {f"usr/lib/vicinal/provider/{library}" for library in libraries} <= names
    assert {f"{site}/vicinal/cli.py", f"{site}/typer/main.py", f"{site}/rich/table.py"} <= names
    assert not any("__pycache__" in name or name.startswith(f"{site}/scipy") for name in names)
    order = list(entries)
    assert order.index("usr/lib") < order.index("usr/lib/vicinal/first-boot")


def test_units_and_scripts_of_the_appliance_are_well_formed() -> None:
    files = contents()
    scripts = [name for name, content in files.items() if content.startswith(b"#!/bin/sh")]
    assert "usr/lib/vicinal/first-boot" in scripts
    for name in scripts:
        subprocess.run(["sh", "-n"], input=files[name], check=True)
    for name in ("first-boot", "context"):
        unit = files[f"etc/systemd/system/vicinal-{name}.service"].decode()
        assert f"ExecStart=/usr/lib/vicinal/{name}\n" in unit
        assert files[f"usr/lib/vicinal/{name}"].startswith(b"#!")
    # cloud-init looks for its data sources in the package that its configuration names.
    package = "usr/lib/python3/dist-packages/vicinal_cloud"
    compile(files[f"{package}/DataSourceOpenNebula.py"], package, "exec")
    assert f"{package}/__init__.py" in files
    configuration = files["etc/cloud/cloud.cfg.d/70-vicinal.cfg"].decode()
    assert "datasource_pkg_list: [vicinal_cloud]" in configuration
    subprocess.run(
        ["sh", "-n", CHECKOUT / "src/vicinal/cluster/vm/image/appliance/finish.sh"], check=True
    )


def test_a_key_is_that_of_what_goes_in() -> None:
    files = {"etc/one": b"1", "etc/two": b"2"}
    key = build.appliance_key(files, "stable", SOURCES)
    assert build.appliance_key(dict(reversed(files.items())), "stable", SOURCES) == key
    others = {
        build.appliance_key(files | {"etc/two": b"3"}, "stable", SOURCES),
        build.appliance_key({"etc/one": b"1", "etc/2": b"2"}, "stable", SOURCES),
        build.appliance_key(files, "testing", SOURCES),
        build.appliance_key(files, "stable", [*SOURCES, "deb mirror updates main"]),
    }
    assert len(others | {key}) == 5


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    make_disk(tmp_path / "disk", Identity("test"))
    return tmp_path / "disk"


def test_partitions_are_where_the_loader_and_the_file_system_go(disk: Path) -> None:
    assert disk.stat().st_size == DISK_SIZE
    table = json.loads(
        subprocess.run(["/sbin/sfdisk", "--json", disk], capture_output=True, check=True).stdout
    )["partitiontable"]
    assert table["label"] == "gpt"
    boot, firmware, root = table["partitions"]
    assert boot["start"] * SECTOR == BOOT_OFFSET
    assert firmware["start"] * SECTOR == FIRMWARE_OFFSET
    assert (root["start"] * SECTOR, root["size"] * SECTOR) == (ROOT_OFFSET, ROOT_SIZE)
    assert (root["start"] + root["size"]) * SECTOR <= DISK_SIZE
    assert root["uuid"].lower() == str(Identity("test").partition("root"))


def test_the_first_sector_leads_to_the_boot_loader(disk: Path) -> None:
    with disk.open("rb") as file:
        table = file.read(2 * SECTOR)[440:]
    install_bios(disk, Identity("test"))
    with disk.open("rb") as file:
        first = file.read(2 * SECTOR)
        file.seek(BOOT_OFFSET)
        core = file.read(2 * SECTOR)
    assert first[440:] == table  # the partition table is unchanged
    assert struct.unpack_from("<Q", first, 0x5C) == (BOOT_OFFSET // SECTOR,)
    assert first[510:512] == b"\x55\xaa"
    start, length = struct.unpack_from("<QH", core, SECTOR - 12)
    assert start == BOOT_OFFSET // SECTOR + 1
    assert length * SECTOR > 30_000  # GRUB with its modules, not only its first sector


def test_firmware_finds_a_program(disk: Path, tmp_path: Path) -> None:
    install_uefi(disk, Identity("test"))
    command = ["mcopy", "-i", f"{disk}@@{FIRMWARE_OFFSET}", "::EFI/BOOT/BOOTX64.EFI"]
    subprocess.run([*command, tmp_path / "program"], check=True)
    program = (tmp_path / "program").read_bytes()
    assert program[:2] == b"MZ"
    # The program contains the configuration unchanged.
    assert f"search.fs_uuid {Identity('test').root} root".encode() in program


def test_what_is_missing_is_said_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mmdebstrap", "grub-mkimage", "mformat", "qemu-img", "apt-get", "newuidmap"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(tools, "tool_environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(VicinalError, match=r"without mke2fs and sfdisk: .* e2fsprogs fdisk$"):
        tools.check_tools()


def test_a_namespace_that_is_refused_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'E: no entry in /etc/subuid for somebody' >&2; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(VicinalError, match=r"no entry in /etc/subuid.*usermod --add-subuids"):
        tools.check_tools()


def test_space_is_looked_at_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(150 << 20) - 1))
    tools.check_space([(tmp_path, 100 << 20)])
    with pytest.raises(VicinalError, match=r"takes 150 MiB in .*, and 149 MiB are free"):
        tools.check_space([(tmp_path, 100 << 20), (tmp_path, 50 << 20)])  # both on one file system


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["I: update", "Err:1 mirror stable InRelease", "E: apt failed"], "could not be fetched"),
        (["tar: x: No space left on device", "E: setup failed"], "no room for the appliance"),
        (["I: a", "chroot: broken", "E: setup failed", "E: more"], "appliance (chroot: broken)"),
        (["E: vicinal: other Python", "E: setup failed"], "other Python: run vicinal with"),
        ([], "no message"),
    ],
)
def test_failures_of_mmdebstrap_are_told_by_their_cause(lines: list[str], said: str) -> None:
    assert said in str(bootstrap.bootstrap_failed(lines, Path("log")))


def stand_in(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a shell script into PATH as mmdebstrap."""
    programs = directory / "programs"
    programs.mkdir()
    script = programs / "mmdebstrap"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.fixture
def image_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for appliances of this test only; nothing asks Debian's mirrors."""
    directory = tmp_path / "kept"
    monkeypatch.setattr(build, "appliances_directory", lambda: directory)
    monkeypatch.setattr(build, "_debian", lambda _: ("stable", SOURCES))
    return directory


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each build writes a short file instead of an appliance; the list has the files written."""
    made: list[Path] = []

    def make(kept: Path, *_: object) -> None:
        time.sleep(0.2)
        made.append(kept)
        kept.write_text(f"appliance {len(made)}")

    monkeypatch.setattr(build, "_make", make)
    monkeypatch.setattr(build, "check_tools", lambda: None)
    return made


def test_the_same_is_not_made_again(
    tmp_path: Path, image_directory: Path, making: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build.build_appliance(tmp_path / "a.qcow2")
    again = build.build_appliance(tmp_path / "b.qcow2")
    assert (first.made, again.made, len(making)) == (True, False, 1)
    assert first.key == again.key
    assert (tmp_path / "a.qcow2").read_text() == (tmp_path / "b.qcow2").read_text()
    assert making[0].parent == image_directory
    # A user who runs a copy changes only this copy.
    (tmp_path / "a.qcow2").write_text("used")
    build.build_appliance(tmp_path / "c.qcow2")
    assert (tmp_path / "c.qcow2").read_text() == "appliance 1"
    build.build_appliance(tmp_path / "d.qcow2", anew=True)
    assert (tmp_path / "d.qcow2").read_text() == "appliance 2"
    files = contents()
    monkeypatch.setattr(build, "contents", lambda: files | {"etc/other": b""})
    assert build.build_appliance(tmp_path / "e.qcow2").key != first.key
    assert len(making) == 3


def test_a_file_of_somebody_elses_is_not_replaced(
    tmp_path: Path, image_directory: Path, making: list[Path]
) -> None:
    target = tmp_path / "disk.qcow2"
    target.write_text("mine")
    with pytest.raises(VicinalError, match=r"exists already.*--replace"):
        build.build_appliance(target)
    assert (target.read_text(), making) == ("mine", [])  # the error comes before any build
    build.build_appliance(target, replace=True)
    assert target.read_text() == "appliance 1"
    build.build_appliance(target)  # the same appliance again
    assert len(making) == 1
    with pytest.raises(VicinalError, match="is a directory"):
        build.build_appliance(image_directory)
    with pytest.raises(VicinalError, match="cannot be written"):
        build.build_appliance(tmp_path / "nowhere" / "a.qcow2")


def test_two_at_a_time_make_one(tmp_path: Path, image_directory: Path, making: list[Path]) -> None:
    made: list[bool] = []

    def make(name: str) -> None:
        made.append(build.build_appliance(tmp_path / name).made)

    threads = [threading.Thread(target=make, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, True]
    assert [kept.parent for kept in making] == [image_directory]


BUILDING = """
if [ "$1" = --unshare-helper ]; then shift; exec "$@"; fi
trap 'touch "$MARK.ended"; exit 1' TERM
echo "I: running apt-get update..." >&2
for word in "$@"; do case $word in "--customize-hook=sync-out "*) fetched=${word##* } ;; esac; done
ls -d "$fetched" >"$MARK.there"
"""


def left(image_directory: Path) -> set[str]:
    return {path.name for path in image_directory.iterdir()} - {
        ".lock",
        "last-build.log",
        "packages",
    }


def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, image_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    stand_in(tmp_path, monkeypatch, f"{BUILDING}\nmkdir -p $TMPDIR/a/b; sleep 60 & wait")

    def interrupted(_: str) -> None:
        while not (tmp_path / "mark.there").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.build_appliance(tmp_path / "a.qcow2", interrupted)
    assert (tmp_path / "mark.ended").exists()  # mmdebstrap received a signal and could clean up
    assert left(image_directory) == set()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "a.qcow2").exists()


def test_a_failed_build_leaves_nothing_and_what_was_there_before(
    tmp_path: Path, image_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_directory.mkdir()
    (image_directory / "appliance-before.qcow2").touch()
    (image_directory / "part-of-one-that-was-killed").mkdir()
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    stand_in(tmp_path, monkeypatch, f"{BUILDING}\necho 'mke2fs: broken' >&2; exit 1")
    said: list[str] = []
    with pytest.raises(VicinalError, match=r"\(mke2fs: broken\): see .* in .*last-build.log$"):
        build.build_appliance(tmp_path / "a.qcow2", said.append)
    assert said == ["reading the mirror's lists of packages"]
    assert left(image_directory) == {"appliance-before.qcow2"}
    assert "mke2fs: broken" in (image_directory / "last-build.log").read_text()


def test_a_directory_of_somebody_elses_is_left_alone(
    tmp_path: Path, image_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user can predict the directory of a build, so another user may have created it."""
    stand_in(tmp_path, monkeypatch, "exit 1")
    theirs, temporary = tmp_path / "theirs", tmp_path / "temporary"
    theirs.mkdir()
    temporary.mkdir()
    (theirs / "file").touch()
    monkeypatch.setenv("TMPDIR", str(temporary))
    key = build.appliance_key(contents(), "stable", SOURCES)
    (temporary / f"vicinal-appliance-{os.geteuid()}-{key}").symlink_to(theirs)
    monkeypatch.setattr(build, "check_tools", lambda: None)
    with pytest.raises(VicinalError, match="belongs to another user"):
        build.build_appliance(tmp_path / "a.qcow2")
    assert (theirs / "file").exists()
    assert left(image_directory) == set()


def test_a_mirror_with_a_password_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PackageStore,
        "release_sources",
        lambda _: ("stable", ["deb https://user:secret@mirror stable main"]),
    )
    with pytest.raises(VicinalError, match="contains a password") as refused:
        build._debian(tmp_path)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_images_are_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (image_commands, store):
        monkeypatch.setattr(module, "guests_directory", lambda: tmp_path)
    monkeypatch.setattr(image_commands, "appliances_directory", lambda: tmp_path / "appliance")
    for name in ("image-1.cpio", "verbs/image-2.cpio", "appliance/appliance-3.qcow2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("debian-1", "verbs/debian-2", "appliance/packages"):
        (tmp_path / name).mkdir()
    images = {image.name: image for image in image_commands.stored_images()}
    assert set(images) == {"virtio-1", "verbs-2", "appliance-3"}
    assert images["virtio-1"].size == len("image-1.cpio")
    with pytest.raises(VicinalError, match="no image 'virtio-9'"):
        image_commands.remove_images(["virtio-1", "virtio-9"])
    assert len(image_commands.stored_images()) == 3
    assert image_commands.remove_images(["verbs-2"]) == ["verbs-2"]
    assert not (tmp_path / "verbs/debian-2").exists()
    assert (tmp_path / "debian-1").exists()
    assert set(image_commands.remove_images([])) == {"virtio-1", "appliance-3"}
    assert not any((tmp_path / name).exists() for name in ("debian-1", "appliance/packages"))


def test_snapshots_are_listed_and_go_with_their_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing other images, with additions or of another kind, does not remove snapshots."""
    for module in (image_commands, store):
        monkeypatch.setattr(module, "guests_directory", lambda: tmp_path)
    monkeypatch.setattr(image_commands, "appliances_directory", lambda: tmp_path / "appliance")
    for name in ("image-1.cpio", "image-with-2.cpio", "verbs/image-3.cpio"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def fill(memory: int, _state: int) -> None:
        os.pwrite(memory, b"x" * 8192, 0)

    for key in ("4", "5", "6"):
        assert store.make(key, 1 << 30, 0, fill)
    stored = {each.name: each for each in image_commands.stored_images()}
    assert {"snapshot-4", "snapshot-5", "snapshot-6"} < set(stored)
    assert 8192 <= stored["snapshot-4"].size < 1 << 20
    with pytest.raises(VicinalError, match="no image 'snapshot-7'"):
        image_commands.remove_images(["snapshot-4", "snapshot-7"])
    assert image_commands.remove_images(["snapshot-4"]) == ["snapshot-4"]
    removed = image_commands.remove_images(["virtio-with-2", "verbs-3"])
    assert removed == ["virtio-with-2", "verbs-3"]
    left = {"virtio-1", "snapshot-5", "snapshot-6"}
    assert {each.name for each in image_commands.stored_images()} == left
    assert set(image_commands.remove_images(["virtio-1"])) == left
    assert [each.name for each in store.snapshots_directory().iterdir()] == [".lock"]
    assert image_commands.stored_images() == []


def test_wrong_calls_of_the_command(vicinal: Vicinal, tmp_path: Path) -> None:
    assert "name the images to remove, or use --all" in error_line(vicinal("image", "remove"))
    assert "no image 'such'" in error_line(vicinal("image", "remove", "such"))
    line = error_line(vicinal("image", "build", "--appliance", tmp_path / "nowhere" / "a.qcow2"))
    assert "cannot be written by this user" in line
    assert json.loads(vicinal("image", "list", "--json").stdout) is not None


def test_a_command_whose_libraries_were_left_out_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(**_: object) -> None:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(command_app, "build_app", lambda _: load)
    assert cli.run(["bench"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("vicinal: error: this command needs the Python library scipy")
    assert said.endswith("in Debian as the package python3-scipy\n")
