"""Whether KVM works: probed once a boot, kept for all users, believed only of root and oneself."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.image.building import GuestImage
from vicinal.cluster.vm.qemu import accelerator_probe as guest_accelerator
from vicinal.cluster.vm.qemu.accelerator_probe import Choice, choose_accelerator, known_choice
from vicinal.cluster.vm.qemu.choice import Qemu

WORKS = Choice(Accelerator.KVM, "a guest booted with it")
HANGS = Choice(Accelerator.TCG, "a guest did not boot with KVM within 30 s")
ANOTHER_USER = 4242
CACHE = "accelerator.json"


@dataclass(frozen=True)
class VersionedQemu(Qemu):
    """A QEMU with a version, and without a program that the test would have to start."""

    own: str = "99.0"

    @property
    def version(self) -> str:
        return self.own


QEMU = VersionedQemu(("qemu",))


@dataclass
class UserHost:
    """A host with a /dev/kvm that can be opened, and the answers of the probe, in order."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch
    answers: list[Choice] = field(default_factory=list)
    probed: int = 0

    @property
    def device(self) -> Path:
        return self.directory / "kvm"

    @property
    def shared(self) -> Path:
        return self.directory / "shared"

    @property
    def own(self) -> Path:
        return self.directory / "own"

    def image(self, kernel: str = "6.1") -> GuestImage:
        return GuestImage(self.device, self.own / "image.cpio", kernel, frozenset())

    def probe(self, *_: object) -> Choice:
        self.probed += 1
        return self.answers.pop(0)

    def choose(self, *, qemu: Qemu = QEMU, kernel: str = "6.1") -> Choice:
        return choose_accelerator(qemu, self.image(kernel))

    def write_to(self, directory: Path) -> None:
        """Set the directory of this user's answers."""
        self.monkeypatch.setattr(guest_accelerator, "guests_directory", lambda: directory)

    def become(self, user: int) -> None:
        """Become another user with a separate directory, who owns none of the existing files."""
        self.monkeypatch.setattr(os, "geteuid", lambda: user)
        self.write_to(self.own)


@pytest.fixture
def user_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UserHost]:
    found = UserHost(tmp_path, monkeypatch)
    found.device.touch()
    for directory in (found.shared, found.own):
        directory.mkdir(mode=0o755)
    monkeypatch.setattr(guest_accelerator, "_DEVICE", found.device)
    monkeypatch.setattr(guest_accelerator, "_probe", found.probe)
    monkeypatch.setattr(guest_accelerator, "shared_directory", lambda: found.shared)
    found.write_to(found.own)
    yield found
    assert found.answers == []  # the probe gave each answer


def test_what_a_guest_showed_is_known_until_the_next_boot(user_host: UserHost) -> None:
    user_host.answers = [WORKS, HANGS]
    assert known_choice(QEMU, user_host.own) is None
    assert user_host.choose() == WORKS
    assert user_host.choose() == known_choice(QEMU, user_host.own) == WORKS
    assert user_host.probed == 1

    user_host.monkeypatch.setattr(guest_accelerator, "_boot", lambda: "another")
    assert known_choice(QEMU, user_host.own) is None
    assert user_host.choose() == known_choice(QEMU, user_host.own) == HANGS


def test_a_kvm_that_cannot_be_opened_is_known_without_a_guest(user_host: UserHost) -> None:
    user_host.answers = [WORKS]
    assert user_host.choose() == WORKS
    user_host.device.unlink()
    for choice in (known_choice(QEMU, user_host.own), user_host.choose()):
        assert choice is not None
        assert choice.accelerator is Accelerator.TCG
        assert "does not exist" in choice.reason


def test_each_qemu_is_tried_and_none_forgotten_for_another(user_host: UserHost) -> None:
    other = replace(QEMU, own="100.0")
    user_host.answers = [WORKS, HANGS]
    for _ in range(2):
        assert user_host.choose() == WORKS
        assert user_host.choose(qemu=other) == HANGS
    assert user_host.probed == 2


def test_another_kernel_is_tried_where_kvm_works_and_not_where_it_hangs(
    user_host: UserHost,
) -> None:
    user_host.answers = [WORKS, HANGS]
    assert user_host.choose(kernel="6.1") == WORKS
    assert user_host.choose(kernel="6.12") == HANGS
    assert user_host.choose(kernel="6.1") == WORKS
    assert user_host.choose(kernel="6.18") == HANGS  # the half-minute probe runs only once
    assert user_host.probed == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave an answer of root's")
@pytest.mark.parametrize("answer", [WORKS, HANGS])
def test_root_s_answer_is_believed_by_all_users(user_host: UserHost, answer: Choice) -> None:
    user_host.write_to(user_host.shared)
    user_host.answers = [answer]
    before = os.umask(0o077)
    try:
        assert user_host.choose() == answer
    finally:
        os.umask(before)
    assert (user_host.shared / CACHE).stat().st_mode & 0o777 == 0o644
    user_host.become(ANOTHER_USER)
    assert user_host.choose() == known_choice(QEMU, user_host.own) == answer
    assert user_host.probed == 1
    # The answer counts only if no other user may write to the file or its directory, or can replace
    # it.
    for path, mode in ((user_host.shared / CACHE, 0o664), (user_host.shared, 0o777)):
        there = path.stat().st_mode
        path.chmod(mode)
        assert known_choice(QEMU, user_host.own) is None
        path.chmod(there)
        assert known_choice(QEMU, user_host.own) == answer
    os.chown(user_host.shared, ANOTHER_USER + 1, -1)
    assert known_choice(QEMU, user_host.own) is None


def test_what_another_user_wrote_is_not_believed(user_host: UserHost) -> None:
    user_host.answers = [WORKS, HANGS]
    for directory in (user_host.shared, user_host.own):
        user_host.write_to(directory)
        if directory == user_host.shared:
            assert user_host.choose() == WORKS
        else:
            (directory / CACHE).write_bytes((user_host.shared / CACHE).read_bytes())
        if os.geteuid() == 0:
            os.chown(directory / CACHE, ANOTHER_USER + 1, -1)
    if os.geteuid() == 0:
        # Root does not believe it either.
        assert known_choice(QEMU, user_host.own) is None
    user_host.become(ANOTHER_USER)
    assert known_choice(QEMU, user_host.own) is None
    assert user_host.choose() == HANGS


@pytest.mark.parametrize("made", ["link", "pipe", "directory", "nonsense", "list", "half"])
def test_what_is_no_answer_is_asked_for_anew(user_host: UserHost, made: str) -> None:
    user_host.answers = [WORKS, HANGS]
    cache = user_host.own / CACHE
    assert user_host.choose() == WORKS
    whole = cache.read_text()
    cache.unlink()
    if made == "link":
        (user_host.own / "target").write_text(whole)
        cache.symlink_to("target")
    elif made == "pipe":
        os.mkfifo(cache)
    elif made == "directory":
        cache.mkdir()
    else:
        half = json.loads(whole)
        del half["answers"][0]["reason"]
        cache.write_text({"nonsense": whole[:-9], "list": "[1]", "half": json.dumps(half)}[made])
    assert known_choice(QEMU, user_host.own) is None
    assert user_host.choose() == HANGS
    assert user_host.probed == 2
    assert not list(user_host.own.glob(f"{CACHE}.*"))


def test_a_user_without_a_directory_finds_out_each_time(user_host: UserHost) -> None:
    file = user_host.directory / "file"
    file.touch()
    user_host.write_to(file / "none")
    user_host.answers = [WORKS, HANGS]
    assert user_host.choose() == WORKS
    assert user_host.choose() == HANGS


def test_nothing_else_is_left_beside_the_answers(user_host: UserHost) -> None:
    user_host.answers = [WORKS, HANGS]
    user_host.choose()
    user_host.choose(qemu=replace(QEMU, own="100.0"))
    assert [each.name for each in user_host.own.iterdir()] == [CACHE]
