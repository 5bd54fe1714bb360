"""An appliance that an unprivileged user built, and a VM that boots it; minutes with TCG."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from appliance_support import NOBODY, Vm, build_appliance, new_region, ordinary_user


@pytest.fixture(scope="session")
def theirs() -> Iterator[Path]:
    """A directory of the unprivileged user, which that user can reach."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        folder = Path(directory)
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir()
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
        yield home


@pytest.fixture(scope="session")
def appliance(theirs: Path) -> Path:
    """The disk as an unprivileged user builds it, including all downloads."""
    file = theirs / "appliance.qcow2"
    began = time.monotonic()
    said = build_appliance(file, ordinary_user(theirs.parent), theirs / "cache")
    print(f"\nbuilt by an unprivileged user in {time.monotonic() - began:.0f} s:\n{said}")
    return file


@pytest.fixture(scope="session")
def vm(appliance: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    with new_region() as region:
        running = Vm(appliance, tmp_path_factory.mktemp("vm"), region)
        try:
            began = time.monotonic()
            running.wait_ready()
            print(f"\nfirst boot under TCG: {time.monotonic() - began:.0f} s")
            yield running
        finally:
            running.stop()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for disks, not in memory."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield directory
    shutil.rmtree(directory)
