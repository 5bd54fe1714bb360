"""The parts of a guest image, tested separately; no guest starts."""

import subprocess
from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.console import console_tail
from vicinal.cluster.vm.image.archive import Archive
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.image.modules import load_order
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory


def test_archive_holds_what_was_put_in(tmp_path: Path) -> None:
    executable = tmp_path / "tool"
    executable.write_bytes(b"#!/bin/sh\n")
    executable.chmod(0o700)
    with Archive(tmp_path / "a.cpio") as archive:
        archive.directory("home/user", 0o750, owner=1000)
        archive.file("etc/one/two", b"odd", 0o600)
        archive.file("etc/one/two", b"a second one does not count")
        archive.link("bin", "usr/bin")
        archive.copy(executable, "opt/tool")
    with (tmp_path / "a.cpio").open("rb") as content:
        listing = subprocess.run(
            ["cpio", "--list", "--verbose", "--numeric-uid-gid"],
            stdin=content, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    entries = {line.split()[8]: line.split() for line in listing.splitlines()}
    assert entries["home/user"][0] == "drwxr-x---"
    assert entries["home/user"][2:4] == ["1000", "1000"]
    assert entries["etc/one/two"][0] == "-rw-------"
    assert entries["etc/one/two"][4] == "3"
    assert entries["bin"][8:] == ["bin", "->", "usr/bin"]
    assert entries["opt/tool"][0] == "-rwxr-xr-x"
    assert set(entries) == {
        "home", "home/user", "etc", "etc/one", "etc/one/two", "bin", "opt", "opt/tool",
    }  # fmt: skip


def make_module(directory: Path, name: str, depends: str) -> None:
    (directory / f"{name}.ko").write_bytes(b"\x7fELF\0depends=" + depends.encode() + b"\0name=x\0")


def test_modules_come_after_what_they_depend_on(tmp_path: Path) -> None:
    (tmp_path / "modules.builtin").write_text("kernel/crypto/crc.ko\n")
    make_module(tmp_path, "virtio_net", "net-failover,virtio,crc")
    make_module(tmp_path, "net_failover", "virtio")
    make_module(tmp_path, "virtio", "")
    order = [name for name, _ in load_order(tmp_path, ["virtio_net", "virtio"])]
    assert order == ["virtio", "net_failover", "virtio_net"]


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.builtin").write_text("")
    with pytest.raises(VicinalError, match="has no module virtio_net"):
        load_order(tmp_path, ["virtio_net"])


def test_console_tail_is_short_and_printable(tmp_path: Path) -> None:
    console = tmp_path / "console"
    console.write_bytes(b"".join(b"line %d\x1b[0m\r\n" % n for n in range(100)) + b"\xff\n")
    lines = console_tail(console)
    assert lines[-2] == "line 99[0m"
    assert len(lines) == 12
    assert console_tail(tmp_path / "nothing") == []


def test_console_tail_shows_what_went_wrong_and_the_lines_before(tmp_path: Path) -> None:
    """A tool prints its error first, then the guest's first process says that it gives up."""
    console = tmp_path / "console"
    lines = ["Kernel panic - not syncing", *(f"call {n}" for n in range(30))]
    for before in (["one"], ["zero", "one", "two", "three"]):
        console.write_text("\n".join([*before, *lines]))
        assert console_tail(console) == [*before[-3:], *lines][:12]


def test_image_is_kept_and_made_anew_for_a_new_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_image()
    said: list[str] = []
    assert build_image(said.append) == first
    assert said == []
    library = provider_directory() / PROVIDER_FILE
    (tmp_path / PROVIDER_FILE).write_bytes(library.read_bytes())
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(tmp_path))
    changed = build_image(said.append)
    assert said == ["writing the guest image"]
    assert changed.files != first.files
    assert changed.has(tmp_path / PROVIDER_FILE)
    assert not changed.has(library)


def test_documentation_shows_the_rule_that_is_tested() -> None:
    tree = Path(__file__).parents[3]
    rule = (tree / "src/vicinal/cluster/vm/image/70-vicinal.rules").read_text().splitlines()[-1]
    assert rule in (tree / "docs" / "tutorials" / "own-vms.md").read_text()
