"""A Slurm cluster whose hosts have the option --vicinal, and what tests of it share."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil
import pytest
from process_support import named
from slurm_support import SlurmHosts

from vicinal.errors import VicinalError
from vicinal.slurm.files import find_plugin

VICINAL = str(Path(sys.executable).parent / "vicinal")
REGIONS = "/run/node/regions"
"""Each host has its own."""
PATIENCE = 90.0


class OptionHosts(SlurmHosts):
    """Two hosts with the option, as an administrator installs it."""

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """Skips the test where the plugin was not built."""
        try:
            find_plugin()
        except VicinalError as error:
            pytest.skip(str(error))
        # Other users have to reach slurm.conf, which they do not in a directory of pytest.
        directory = Path(tempfile.mkdtemp(prefix="vicinal-slurm-"))
        directory.chmod(0o755)
        try:
            with cls(2, directory) as hosts:
                yield hosts
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def clean(self) -> Iterator[Self]:
        """Hosts that have no regions before, and none after."""
        wait_until(self.nothing_left)
        yield self
        wait_until(self.nothing_left)

    def prepare(self) -> None:
        done = self.at_head(VICINAL, "slurm", "install", "--directory", REGIONS)
        assert done.returncode == 0, done.stderr

    def regions(self, name: str) -> list[str]:
        """What is in the directory of regions of a host, with modes and owners."""
        show = "find . -mindepth 1 -printf '%P %m %U\\n'"
        script = f"if [ -d {REGIONS} ]; then cd {REGIONS} && {show}; fi"
        return sorted(self.cluster.run_in(name, ["sh", "-c", script]).splitlines())

    def running(self, name: str, program: str) -> list[psutil.Process]:
        """The processes of a program on a host."""
        return named(self.cluster.processes(name), program)

    def nothing_left(self) -> bool:
        return not any(self.regions(name) for name in self.names) and not self.leftovers()

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        """Start a command of Slurm's at the head, which says nothing."""
        return subprocess.Popen(
            self.entered([str(word) for word in command]),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def waiting_job(self, *, user: int = 0) -> str:
        """Start a job with a region on the first host, which waits to be cancelled; its number."""
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
        allocate = ("salloc", "-Q", "--vicinal", "-wnode0", "-n1", "--no-shell", "--job-name=waits")
        done = self.at_head(*become, *allocate)
        assert done.returncode == 0, done.stderr
        listed = self.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.split()
        number = max(listed, key=int)
        step = ("srun", "--vicinal", f"--jobid={number}", "--overlap", "true")
        done = self.at_head(*become, *step)
        assert done.returncode == 0, done.stderr
        return number


def wait_until(good: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.1)
