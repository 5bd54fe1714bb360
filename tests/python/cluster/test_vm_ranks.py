"""Waiting for a moved VM's ranks in the other host's region, and why some ranks do not come.

No VM exists here. Commands for the VM run on this host, which shows a fake directory of
PCI devices. The members of the region are real.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from vicinal.base.errors import VicinalError
from vicinal.cluster.commands import say_who_is_out
from vicinal.cluster.nodes.vm import ranks
from vicinal.cluster.nodes.vm.ranks import Return, await_back
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.region import create

DEVICES = "/sys/bus/pci/devices"
NOBODY = 65534


@pytest.fixture(scope="module")
def program(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("member") / "region_member"
    sources = sorted((checkout / "provider/region").glob("*.c"))
    compiler = ("cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread", f"-I{checkout / 'provider'}")
    main = checkout / "tests/python/support/region_member.c"
    subprocess.run([*compiler, main, *sources, "-o", program], check=True)
    return program


@pytest.fixture
def vm(region_path: Path) -> Vm:
    return Vm(
        owner="0-lab",
        name=os.uname().nodename,
        number=0,
        peers=(),
        uri="test:///default",
        directory="/nowhere",
        cpus=1,
        memory_mib=1,
        region=region_path.name,
    )


@contextmanager
def joined(program: Path, region_path: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [str(program), f"file:{region_path}"]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("joined ")
        yield process
        process.kill()


@pytest.fixture
def member(program: Path, region_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A member of a region that has room for one more."""
    create(region_path, members=2)
    with joined(program, region_path) as process:
        yield process


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the VM's devices."""
    directory = tmp_path / "devices"
    directory.mkdir()

    class Guest:
        """This host, with the fake devices. Its user is not root."""

        def __init__(self, _: Vm) -> None:
            self.entered = False

        def enter(self) -> None:
            self.entered = True

        def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
            assert self.entered
            become = f"setpriv --reuid={NOBODY} --clear-groups " if os.geteuid() == 0 else ""
            script = f"mount --bind {directory} {DEVICES} && exec {become}{shlex.join(command)}"
            spaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
            return subprocess.run(
                [*spaces, "sh", "-c", script], check=True, capture_output=True, text=True
            )

    monkeypatch.setattr(ranks, "GuestSsh", Guest)
    return directory


def plug(devices: Path, mode: int) -> None:
    """Add an ivshmem device and another device, as the kernel shows them.

    Mode 0 stands for a file of root. A file of the user would not do: in a user namespace of its
    own, the user can open all its files.
    """
    for number, (vendor, device) in enumerate((("0x8086", "0x1237"), ("0x1af4", "0x1110"))):
        own = devices / f"0000:0{number}:00.0"
        own.mkdir()
        (own / "vendor").write_text(f"{vendor}\n")
        (own / "device").write_text(f"{device}\n")
        if mode == 0:
            (own / "resource2").symlink_to("/etc/shadow")
            continue
        (own / "resource2").touch()
        (own / "resource2").chmod(mode)
    for each in (devices.parent.parent, devices.parent, devices):
        each.chmod(0o755)


def late(vm: Vm) -> Return:
    """The result for a process that lives but is not in the region."""
    return await_back(vm, [(os.getpid(), 0)], seconds=0.1)


@pytest.mark.usefixtures("devices")
def test_who_is_there_is_not_waited_for(vm: Vm, member: subprocess.Popen[str]) -> None:
    assert await_back(vm, [(member.pid, 0)], seconds=60) == Return(1, 0)
    assert await_back(vm, [], seconds=60) == Return(0, 0)
    # A second endpoint of the same process has not joined.
    assert await_back(vm, [(member.pid, 0), (member.pid, 1)], seconds=0.1).out == 1


@pytest.mark.usefixtures("devices")
def test_a_guest_that_does_not_see_the_device(vm: Vm) -> None:
    create(Path("/dev/shm") / str(vm.region), members=2)
    found = late(vm)
    assert (found.back, found.out) == (0, 1)
    assert "does not see the region's device: see its kernel's messages" in found.why


def test_a_guest_whose_users_may_not_open_it(vm: Vm, devices: Path) -> None:
    create(Path("/dev/shm") / str(vm.region), members=2)
    plug(devices, 0o600 if os.geteuid() == 0 else 0)
    if os.geteuid() != 0 and os.access(devices / "0000:01:00.0/resource2", os.R_OK):
        pytest.skip("this user may open everything")
    assert "does not let its users open" in late(vm).why


@pytest.mark.usefixtures("member")
def test_a_region_that_is_full(vm: Vm, program: Path, region_path: Path, devices: Path) -> None:
    plug(devices, 0o666)
    with joined(program, region_path):
        assert "with room for 2 endpoints: raise region.members" in late(vm).why
    assert "have not joined it" in late(vm).why  # the process of the earlier member is dead


def test_ranks_that_look_late(vm: Vm, devices: Path) -> None:
    create(Path("/dev/shm") / str(vm.region), members=2)
    plug(devices, 0o666)
    assert "have not joined it within 0.1 s" in late(vm).why


@pytest.mark.usefixtures("devices")
def test_who_has_ended_is_not_missed(vm: Vm) -> None:
    create(Path("/dev/shm") / str(vm.region), members=2)
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert await_back(vm, [(ended.pid, 0)], seconds=0.1) == Return(0, 0)


def test_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    say_who_is_out(3, Return(2, 1, "the cause: the remedy"))
    said = capsys.readouterr().err
    assert "warning: 1 of 3 ranks are not in the new host's region, and use the network" in said
    assert "the cause: the remedy" in said
    say_who_is_out(3, Return(2, 0))
    assert capsys.readouterr().err == ""


class Mapped:
    """A VM that answers each request with the processes in it that map its region."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        self.answers = list(answers)
        monkeypatch.setattr(ranks, "GuestSsh", lambda _: self)
        monkeypatch.setattr(ranks, "_STRANGER_SECONDS", 0.0)

    def enter(self) -> None:
        pass

    def run(self, _: Sequence[str]) -> subprocess.CompletedProcess[str]:
        # After the last answer, the VM repeats it.
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return subprocess.CompletedProcess([], 0, answer, "")


def test_who_left_the_region_may_take_its_time_to_unmap_it(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Mapped(monkeypatch, "165 soak 600\n", "165 soak 600\n", "")
    ranks._check_unmapped(vm, {"165"}, 60.0)
    assert busy.answers == [""]


@pytest.mark.parametrize(
    ("left", "said"), [({"165"}, "left its region, and still has it"), ({"7"}, "not a rank that")]
)
def test_who_keeps_the_region_is_named(
    vm: Vm, monkeypatch: pytest.MonkeyPatch, left: set[str], said: str
) -> None:
    Mapped(monkeypatch, "165 soak 600\n")
    with pytest.raises(VicinalError, match=f"process 165 in .* {said} .*: soak 600"):
        ranks._check_unmapped(vm, left, 0.0)
