"""Snapshots of guests: who may use one, which guests it fits, who creates it. No guest runs."""

import os
import shutil
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import Card, Identity, Keys, write_archives, write_keys
from vicinal.cluster.vm.image import building as image
from vicinal.cluster.vm.image.kind import GuestNetwork, kind_of
from vicinal.cluster.vm.qemu.choice import QEMU, Qemu
from vicinal.cluster.vm.snapshot import store
from vicinal.cluster.vm.snapshot.hardware import (
    MOST_DEVICES,
    PassedVf,
    SnapshotHardware,
    Sockets,
    with_vfs,
)
from vicinal.cluster.vm.snapshot.waiting import Monitor, WaitingGuest

KEY = "0123456789abcdef"
MEMORY = 1 << 20


@pytest.fixture
def store_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of snapshots, which does not exist yet."""
    monkeypatch.setattr(store, "guests_directory", lambda: tmp_path)
    return store.snapshots_directory()


def write(memory: int, state: int) -> None:
    """Stands for saving a guest."""
    os.pwrite(memory, b"memory", 0)
    os.write(state, b"state")


def make(key: str = KEY, save: store.Save = write) -> bool:
    return store.make(key, MEMORY, MEMORY, save)


def is_there(key: str = KEY) -> bool:
    with store.opened(key) as found:
        return found is not None


# --- creating one --------------------------------------------------------------------------


def test_a_snapshot_is_made_once_and_is_its_user_s_alone(store_directory: Path) -> None:
    assert not is_there()
    assert make()
    with store.opened(KEY) as found:
        assert found is not None
        assert os.pread(found.memory, 7, 0) == b"memory\0"
        assert os.pread(found.state, 9, 0) == b"state"
        assert os.fstat(found.memory).st_size == MEMORY
    modes = {each.name: each.stat().st_mode & 0o777 for each in (store_directory / KEY).iterdir()}
    assert modes == {"memory": 0o600, "state": 0o600}
    assert make(save=lambda *_: pytest.fail("it was made twice"))


@pytest.mark.usefixtures("store_directory")
def test_of_two_makers_the_second_waits_and_finds_it() -> None:
    made = []
    begun = threading.Event()

    def save(memory: int, state: int) -> None:
        begun.set()
        time.sleep(0.3)
        write(memory, state)
        made.append(1)

    first = threading.Thread(target=make, args=(KEY, save))
    first.start()
    assert begun.wait(60)
    assert not is_there()  # half a snapshot does not count
    assert make(save=save)
    first.join()
    assert made == [1]


def test_one_that_failed_leaves_nothing(store_directory: Path) -> None:
    def fail(memory: int, state: int) -> None:
        write(memory, state)
        raise VicinalError("the guest did not boot", "mend it")

    with pytest.raises(VicinalError, match="did not boot"):
        make(save=fail)
    assert [each.name for each in store_directory.iterdir()] == [".lock"]


def test_what_a_killed_maker_left_goes_with_the_next(store_directory: Path) -> None:
    child = os.fork()
    if child == 0:
        make(save=lambda *_: os._exit(9))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [each.name for each in store_directory.iterdir() if each.suffix] == [f"{KEY}.part"]
    assert not is_there()
    assert make()
    assert not [each for each in store_directory.iterdir() if each.suffix]


def test_there_are_a_few_at_most(store_directory: Path) -> None:
    """The snapshot used last stays; a process that has an old one open can still read it."""
    for number in range(4):
        assert make(f"{number:016x}")
        os.utime(store_directory / f"{number:016x}", (number, number))
    with store.opened(f"{0:016x}"), store.opened(f"{1:016x}") as found:
        os.utime(store_directory / f"{1:016x}", (1, 1))
        assert make()
        assert found is not None
        assert os.pread(found.state, 9, 0) == b"state"
    kept = sorted(each.name for each in store_directory.iterdir() if each.is_dir())
    assert kept == sorted([f"{0:016x}", f"{2:016x}", f"{3:016x}", KEY])


def test_without_room_there_is_none(store_directory: Path) -> None:
    free = shutil.disk_usage(store_directory.parent).free
    assert not store.make(KEY, MEMORY, 2 * free, lambda *_: pytest.fail("there is no room"))
    assert not is_there()


# --- what other users could have put there --------------------------------------------------


def link_memory(store_directory: Path) -> None:
    (store_directory / KEY / "memory").rename(store_directory / "elsewhere")
    (store_directory / KEY / "memory").symlink_to(store_directory / "elsewhere")


def link_directory(store_directory: Path) -> None:
    store_directory.rename(store_directory.with_name("elsewhere"))
    store_directory.symlink_to(store_directory.with_name("elsewhere"))


def pipe_as_state(store_directory: Path) -> None:
    (store_directory / KEY / "state").unlink()
    os.mkfifo(store_directory / KEY / "state", 0o600)


def give_away(store_directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(store_directory / KEY / "memory", 1, -1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda store_directory: (store_directory / KEY / "memory").chmod(0o640),
        lambda store_directory: (store_directory / KEY / "state").chmod(0o602),
        lambda store_directory: (store_directory / KEY).chmod(0o770),
        lambda store_directory: store_directory.chmod(0o777),
        link_memory,
        link_directory,
        pipe_as_state,
        give_away,
    ],
)
def test_one_that_others_could_have_written_is_not_taken(
    store_directory: Path, spoil: Callable[[Path], object]
) -> None:
    assert make()
    spoil(store_directory)
    with pytest.raises(VicinalError, match="must belong to this user only"):
        is_there()


# --- which guests a snapshot fits ----------------------------------------------------------


@pytest.fixture
def hardware(tmp_path: Path) -> SnapshotHardware:
    if shutil.which(QEMU) is None:
        pytest.skip(f"{QEMU} is missing")
    for name in ("kernel", "files"):
        (tmp_path / name).write_text(name)
    kernel, files = tmp_path / "kernel", tmp_path / "files"
    return SnapshotHardware(Qemu((QEMU,)), Accelerator.TCG, kernel, files, 1024, 1)


def test_each_make_of_a_guest_has_a_snapshot_of_its_own(hardware: SnapshotHardware) -> None:
    first = hardware.key
    assert hardware.key == first
    others = [
        replace(hardware, memory_mib=1025),
        replace(hardware, cpus=3),
        replace(hardware, accelerator=Accelerator.KVM),
        replace(hardware, files=hardware.kernel),
    ]
    keys = {first, *(each.key for each in others)}
    hardware.files.write_text("other")
    assert len(keys | {hardware.key}) == len(others) + 2


# --- whose image a snapshot uses ---------------------------------------------------------------


def write_image(directory: Path, *, spoil: Callable[[Path], object]) -> bool:
    """Put root's image there with a fault, and return whether another user accepts it."""
    kind = kind_of(GuestNetwork.VIRTIO)
    system = image.system_directory(directory, kind)
    for each in (system / "boot", system / "lib/modules/6.1"):
        each.mkdir(parents=True)
    (system / "boot/vmlinuz-6.1").touch()
    file = directory / f"image-{image.content_key(image._descriptions(kind, system, []))}.cpio"
    file.touch()
    for each in (directory, *directory.rglob("*")):
        each.chmod(0o755)
    spoil(file)
    child = os.fork()
    if child == 0:
        os.setuid(1)
        found = image.find_image(lambda _: None)
        os._exit(7 if found.files == file else 8)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has an image for all users")
@pytest.mark.parametrize(
    ("taken", "spoil"),
    [
        (True, lambda _: None),
        (False, lambda file: file.unlink()),
        (False, lambda file: file.chmod(0o600)),
        (False, lambda file: file.chmod(0o666)),
        (False, lambda file: os.chown(file, 2, -1)),
        (False, lambda file: file.parent.chmod(0o777)),
        (False, lambda file: next(file.parent.glob("debian-*/boot")).chmod(0o775)),
        (False, lambda file: os.chown(next(file.parent.glob("*/boot/vm*")), 2, -1)),
        (False, lambda file: (file.rename(file.with_suffix("")), file.symlink_to("/etc/passwd"))),
    ],
)
def test_only_root_s_own_image_is_taken_by_others(
    *, taken: bool, spoil: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is none, or its sources changed, each user builds an image."""
    own = image.GuestImage(Path("own"), Path("own"), "", frozenset())
    monkeypatch.setattr(image, "build_image", lambda _: own)
    monkeypatch.setattr(image, "_host_parts", list)
    # Other users cannot reach a directory of pytest's.
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "guests"
        directory.mkdir()
        directory.parent.chmod(0o755)
        monkeypatch.setattr(image, "shared_directory", lambda: directory)
        assert write_image(directory, spoil=spoil) is taken


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes images for others")
def test_others_can_read_root_s_image_whatever_root_s_umask_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisors of jobs run with a umask that hides new files from other users."""

    def system(directory: Path, _kind: object, _say: object) -> Path:
        (directory / "made").touch()
        raise VicinalError("that is all", "end")

    monkeypatch.setattr(image, "guests_directory", lambda: tmp_path / "guests")
    monkeypatch.setattr(image, "_system", system)
    before = os.umask(0o077)
    try:
        with pytest.raises(VicinalError, match="that is all"):
            image.build_image()
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in sorted(tmp_path.rglob("*"))]
    assert modes[0] == 0o755
    assert 0o644 in modes


# --- QEMU ----------------------------------------------------------------------------------


def talk(*answers: bytes) -> Monitor:
    """A monitor whose other end sends these lines, whatever it receives, and hangs up."""
    own, other = socket.socketpair()
    with other:
        other.sendall(b"".join(each + b"\n" for each in answers))
        other.shutdown(socket.SHUT_WR)
        return Monitor(own)


def test_a_qemu_that_refuses_says_why() -> None:
    own, other = socket.socketpair()
    with other:
        lines = (b'{"QMP": {}}', b'{"return": {}}', b'{"event": "STOP"}')
        other.sendall(b"\n".join(lines) + b"\n" + b'{"error": {"desc": "no such device"}}\n')
        monitor = Monitor(own)
        with pytest.raises(VicinalError, match="refuses device_add: no such device"):
            monitor.ask("device_add", {"driver": "none"})
        monitor.close()


@pytest.mark.parametrize("said", [(), (b'{"QMP": {}}',), (b"nonsense",), (b"[]",)])
def test_a_qemu_that_ended_is_said_to_be_silent(said: tuple[bytes, ...]) -> None:
    with pytest.raises(VicinalError, match="did not answer"):
        talk(*said)


def test_a_qemu_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    """QEMU closes its sockets before it ends; without the wait, the cause of its end is lost."""

    def guest_of(_name: str, _console: Path, sockets: Sockets, *_: object) -> SimpleNamespace:
        last_words = "echo 'cannot allocate memory' >&2; sleep 0.3; exit 1"
        command = ["bash", "-c", f"exec {sockets.monitor}>&-; {last_words}"]
        return SimpleNamespace(command=lambda _qemu: command, files=[sockets.monitor])

    hardware = SimpleNamespace(guest=guest_of, qemu=None, accelerator=Accelerator.TCG)
    guest = WaitingGuest("guest0", tmp_path, Keys(tmp_path), cast("SnapshotHardware", hardware))
    with pytest.raises(VicinalError, match=r"QEMU ended \(cannot allocate memory\)"):
        guest.boot()
    guest.stop()


# --- VFs that are passed through -----------------------------------------------------


def test_a_guest_is_told_of_the_vfs_that_it_is_given(tmp_path: Path) -> None:
    vfs = tuple(
        PassedVf(f"0000:01:08.{number}", driver, f"02:00:00:00:00:0{number}", name, address)
        for number, (driver, name, address) in enumerate(
            [("igbvf", "eth1", "10.9.0.1/24"), ("igbvf", "eth2", None), ("iavf", "eth3", None)]
        )
    )
    assert vfs[0].device == {"driver": "vfio-pci", "host": "0000:01:08.0"}
    card = Card("52:54:00:00:ff:ff")
    identity = with_vfs(Identity(0, "a", "10.0.0.1", (card,)), vfs)
    names = ("user-key", "user-key.pub", "host-key", "host-key.pub")
    write_keys(tmp_path, dict.fromkeys(names, ""))
    archive = write_archives(tmp_path, [identity]).archive("a")
    with tarfile.open(archive) as tar:
        found = tar.extractfile("etc/vicinal/guest")
        assert found is not None
        told = found.read().decode().splitlines()
    assert "cards='52:54:00:00:ff:ff'" in told
    links = "02:00:00:00:00:00=eth1=10.9.0.1/24 02:00:00:00:00:01=eth2= 02:00:00:00:00:02=eth3="
    assert f"links='{links}'" in told
    assert "drivers='igbvf iavf'" in told


def test_more_vfs_than_a_guest_has_room_for() -> None:
    vfs = (PassedVf("0000:01:08.0", "igbvf", "02:00:00:00:00:00", "eth1"),)
    cards = tuple(Card(f"52:54:00:00:00:{number:02x}") for number in range(MOST_DEVICES - 2))
    with_vfs(Identity(0, "a", "10.0.0.1", cards), vfs)
    with pytest.raises(VicinalError, match="a has no room for 2 VFs and 22 cards"):
        with_vfs(Identity(0, "a", "10.0.0.1", cards), vfs * 2)
