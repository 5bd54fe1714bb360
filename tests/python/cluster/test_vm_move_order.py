"""The steps of a VM's move, and the steps that a later failure undoes; no VM is moved."""

from collections.abc import Callable
from typing import Any

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm import migration
from vicinal.cluster.nodes.vm.ranks import Return
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.libvirt.migrate import Moved

RANKS = (("node0", 1), ("node0", 2))


class Part:
    """A host's part of the move, which records its requests."""

    def __init__(self, name: str, done: list[str], accelerator: Accelerator) -> None:
        self.domain, self.accelerator = "vicinal-0-lab-vm1", accelerator
        self._name, self._done = name, done
        self.fails = ""

    def _do(self, step: str, result: Any = None) -> Any:
        self._done.append(f"{self._name} {step}")
        if step == self.fails:
            raise VicinalError(f"{step} fails", "wait")
        return result

    def check_leaves(self) -> None:
        self._do("check_leaves")

    def check_comes(self) -> None:
        self._do("check_comes")

    def send_out(self, seconds: float) -> Any:
        assert seconds == migration.MOVE_SECONDS
        return self._do("send_out", RANKS)

    def close(self) -> None:
        self._do("close")

    def call_back(self) -> None:
        self._do("call_back")

    def await_back(self, whom: object, seconds: float) -> Return:
        assert (whom, seconds > 0) == (RANKS, True)
        result: Return = self._do("await_back", Return(2, 0))
        return result

    def side(self) -> Any:
        return self._do("side")


@pytest.fixture
def done() -> list[str]:
    return []


Parts = Callable[..., tuple[Part, Part]]


@pytest.fixture
def parts(done: list[str], monkeypatch: pytest.MonkeyPatch) -> Parts:
    def make(*, there: Accelerator = Accelerator.KVM, migrates: bool = True) -> tuple[Part, Part]:
        def migrate(*_: object, **__: object) -> Moved:
            done.append("migrate")
            if not migrates:
                raise VicinalError("libvirt does not move it", "see its log")
            return Moved(1.0, 0.1)

        monkeypatch.setattr(migration, "migrate", migrate)
        return Part("here", done, Accelerator.KVM), Part("there", done, there)

    return make


def test_ranks_leave_before_the_vm_does_and_come_back_there(parts: Parts, done: list[str]) -> None:
    report = migration.move_vm(*parts())
    assert (report.ranks, report.back.back) == (2, 2)
    assert done == [
        *("here check_leaves", "there check_comes", "here send_out", "here close"),
        *("here side", "there side", "migrate", "there await_back"),
    ]


def test_where_the_move_fails_ranks_come_back_here(parts: Parts, done: list[str]) -> None:
    with pytest.raises(VicinalError, match="libvirt does not move it"):
        migration.move_vm(*parts(migrates=False))
    assert done[-2:] == ["migrate", "here call_back"]


def test_so_do_they_where_not_all_leave(parts: Parts, done: list[str]) -> None:
    here, there = parts()
    here.fails = "send_out"
    with pytest.raises(VicinalError, match="send_out fails"):
        migration.move_vm(here, there)
    assert done[-2:] == ["here send_out", "here call_back"]


@pytest.mark.parametrize("fails", ["check_comes", ""])
def test_nobody_leaves_where_it_cannot_be(parts: Parts, done: list[str], fails: str) -> None:
    here, there = parts(there=Accelerator.KVM if fails else Accelerator.TCG)
    there.fails = fails
    with pytest.raises(VicinalError, match=fails or "KVM executes VMs on this host, and TCG"):
        migration.move_vm(here, there)
    assert "here send_out" not in done
    assert "here call_back" not in done
