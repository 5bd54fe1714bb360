"""Fixtures for tests between virtual machines, which take some minutes with TCG."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guest_support import TEST_SECONDS

from vicinal.cluster.nodes.vm.pair import GuestPair
from vicinal.cluster.vm.image.building import build_image
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi, mpi_prefix
from vicinal.mpi.libraries import STANDARD

# Programs that tests start must not inherit an ignored SIGINT: see tests/python/conftest.py.
signal.signal(signal.SIGINT, signal.default_int_handler)

PROGRAMS = ("latency", "bandwidth", "verify")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of guests more time than other tests before they count as hanging."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Compile the programs that go into the image, and build the image once.

    It is built here, because hosts that are namespaces cannot reach the mirrors of packages.
    """
    for mpi in STANDARD:
        for name in PROGRAMS:
            mpi_program(mpi, name)
    build_image(print)


@pytest.fixture(scope="module")
def pair() -> Iterator[GuestPair]:
    with GuestPair(say=print) as running:
        print(running.choice)
        yield running


@pytest.fixture(scope="session")
def hosts() -> Iterator[GuestPair]:
    """Two guests that play two hosts, with RDMA between them, for the last files."""
    with GuestPair(members=32, network=GuestNetwork.VERBS, say=print) as running:
        print(running.choice, running.qemu.version, running.image.kernel_version)
        yield running


@pytest.fixture
def compile_mpi(tmp_path: Path) -> Callable[[Mpi, str], Path]:
    """Compiles a source beside the tests with an MPI library's own compiler."""

    def compile_one(mpi: Mpi, name: str) -> Path:
        target = tmp_path / f"{name}-{mpi}"
        source = Path(__file__).parent / f"support/{name}.c"
        prefix = mpi_prefix(mpi)
        command = [f"{prefix}/bin/mpicc", "-o", str(target), str(source)]
        subprocess.run([*command, f"-Wl,-rpath,{prefix}/lib"], check=True, timeout=120)
        return target

    return compile_one
