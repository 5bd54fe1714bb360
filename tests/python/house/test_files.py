"""Files that exist whole or not at all, and locks that one process holds at a time."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from vicinal.base import files
from vicinal.base.errors import VicinalError
from vicinal.base.files import (
    DIRECTORY,
    OWN_FILE,
    Durability,
    lock,
    locked,
    take_lock,
    write_atomically,
)


def test_who_comes_second_waits_for_the_first(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with locked(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with locked(tmp_path):
        waiting.start()
        waiting.join(0.5)
        assert order == []
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOCK_SECONDS", 0.2)
    with (
        locked(tmp_path),
        pytest.raises(VicinalError, match="another command has used"),
        locked(tmp_path),
    ):
        pass


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("by_several", [False, True])
def test_a_full_disk_costs_neither_the_old_content_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, by_several: bool
) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old", durability, by_several=by_several)
    usual = os.open

    def full(path: Path, flags: int, mode: int) -> int:
        os.close(usual(path, flags, mode))
        return usual("/dev/full", os.O_WRONLY)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(file, "new", durability, by_several=by_several)
    assert caught.value.errno == errno.ENOSPC
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "old"


def test_a_file_has_the_mode_that_its_writer_names_or_the_usual_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = os.umask(0o027)
    try:
        for mode, expected in ((None, 0o640), (0o644, 0o644), (0o600, 0o600), (None, 0o640)):
            write_atomically(file, b"content", Durability.NONE, mode=mode)
            assert stat.S_IMODE(file.stat().st_mode) == expected
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("durability", "synced"),
    [
        (Durability.NONE, []),
        (Durability.CONTENT, ["content"]),
        (Durability.NAME, ["content", "name"]),
    ],
)
def test_what_was_asked_for_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, synced: list[str]
) -> None:
    done: list[str] = []

    def fsync(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert (tmp_path / "file").exists() == is_directory
        assert is_directory or os.fstat(descriptor).st_size == len("content")
        done.append("name" if is_directory else "content")

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", "content", durability)
    assert done == synced


def test_what_a_killed_writer_left_is_neither_followed_nor_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of another")
    (tmp_path / ".file.part").symlink_to(elsewhere)
    write_atomically(tmp_path / "file", "content", Durability.NONE)
    assert elsewhere.read_text() == "of another"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["elsewhere", "file"]


def test_a_lock_is_of_the_file_that_has_the_name(tmp_path: Path) -> None:
    """If another process removes the directory during the wait, lock() creates a new one."""
    directory = tmp_path / "directory"
    first = lock(directory, make=lambda: directory.mkdir(exist_ok=True))
    with pytest.raises(BlockingIOError):
        lock(directory)
    with pytest.raises(BlockingIOError):
        lock(directory, shared=True, seconds=0.2)
    second: list[int] = []
    waiting = threading.Thread(
        target=lambda: second.append(
            lock(directory, seconds=None, make=lambda: directory.mkdir(exist_ok=True))
        )
    )
    waiting.start()
    waiting.join(0.2)
    assert not second
    directory.rmdir()
    os.close(first)
    waiting.join(30)
    assert os.path.samestat(os.fstat(second[0]), directory.stat())
    os.close(second[0])


def test_several_share_a_lock(tmp_path: Path) -> None:
    file = tmp_path / "file"
    held = [lock(file, OWN_FILE, shared=True) for _ in range(2)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open() as other:
        assert not take_lock(other.fileno())
        assert take_lock(other.fileno(), shared=True)
    for each in held:
        os.close(each)
    with file.open() as other:
        assert take_lock(other.fileno())


def test_a_file_that_must_not_be_locked_is_not(tmp_path: Path) -> None:
    def refuse(_: os.stat_result) -> None:
        raise PermissionError

    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(PermissionError):
        lock(tmp_path, check=refuse)
    with pytest.raises(FileNotFoundError):
        lock(tmp_path / "missing", seconds=60)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        lock(tmp_path / "link", DIRECTORY | os.O_NOFOLLOW, seconds=60)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with tmp_path.joinpath("elsewhere").open("w") as free:
        assert take_lock(free.fileno())
