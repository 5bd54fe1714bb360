"""What tests of several areas share, and which of them may run beside each other."""

import ctypes
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checks.leftovers import new_shared_path
from command_client import CommandServer
from command_support import CHECKOUT, Vicinal
from launch_support import LAUNCH_RANKS, compile_for_each_mpi
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).parent

GROUPS = {
    # Ranks spin on all cores: jobs beside each other wait for one another's time slices.
    **dict.fromkeys(("launch", "faults", "monitoring", "network", "bench", "collectives"), "jobs"),
    # A Slurm's daemons, and what is left of its jobs, are looked for on the whole host.
    "slurm": "slurm",
    # They share reports that take seconds to write.
    **dict.fromkeys(
        ("test_study_report", "test_study_report_plots", "test_study_report_tuned"), "reports"
    ),
    # A libvirt's daemon has directories of its own on the host.
    "vm": "vm",
}
"""Areas and files whose tests run in one process, one after the other, and why."""


def _process_of(nodeid: str) -> str:
    """The file of a test, or the group that runs in one process: see GROUPS."""
    file = Path(nodeid.partition("::")[0])
    return GROUPS.get(file.parent.name) or GROUPS.get(file.stem) or str(file)


class _GroupScheduling(LoadFileScheduling):
    """Gives each file to one process, since its tests share fixtures, and each group to one."""

    def _split_scope(self, nodeid: str) -> str:
        return _process_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Have pytest-xdist's loadfile keep to GROUPS, and to the order of the tests."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return _GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of pytest-xdist: the groups come first, and last the files of many tests.

    Files of few tests are those that start jobs and clusters, each of which takes up to half a
    minute. At the end one of them would have a core for itself while the others have no work.
    """
    if not hasattr(config, "workerinput"):
        return
    process = {item.nodeid: _process_of(item.nodeid) for item in items}
    count = Counter(process.values())
    groups = list(dict.fromkeys(GROUPS.values()))

    def order(item: pytest.Item) -> tuple[int, int]:
        own = process[item.nodeid]
        return groups.index(own) if own in groups else len(groups), count[own]

    items.sort(key=order)


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """launch_ranks.c, by the name of the MPI that it was compiled for."""
    return compile_for_each_mpi(LAUNCH_RANKS, tmp_path_factory.mktemp("programs"))


@pytest.fixture
def region_path() -> Iterator[Path]:
    """A path on tmpfs that nobody else uses; what is there at the end is removed."""
    path = new_shared_path()
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def command_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    server = CommandServer(tmp_path_factory.mktemp("command"))
    yield server
    server.close()


@pytest.fixture
def vicinal(tmp_path: Path, command_server: CommandServer) -> Vicinal:
    """Runs the command in a process of its own, and returns its output and exit status."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = (
            os.environ | {"PYTHONPATH": str(CHECKOUT / "src"), "COLUMNS": "200"} | variables
        )
        return command_server.run([str(argument) for argument in arguments], tmp_path, environment)

    return run


@pytest.fixture
def memory_policy() -> Callable[[], tuple[int, int]]:
    """Says where the kernel takes this thread's memory from: the policy, and nodes as bits."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the number of get_mempolicy is not known here for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)

    def policy() -> tuple[int, int]:
        mode, mask = ctypes.c_int(), (ctypes.c_ulong * 16)()
        failed = libc.syscall(
            *(ctypes.c_long(239), ctypes.byref(mode), mask, ctypes.c_ulong(1025)),
            *(None, ctypes.c_long(0)),
        )
        assert not failed, os.strerror(ctypes.get_errno())
        return mode.value, mask[0]

    return policy
