"""A Slurm cluster whose hosts have the option --vicinal, and what its tests share."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
from launch_support import package_path, unprivileged_python
from process_support import named, parent_of, pid_namespace, words_of
from slurm_support import SlurmHosts, process_numbers

from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm.files import find_plugin

VICINAL = str(Path(sys.executable).parent / "vicinal")
REGIONS = "/run/node/regions"
"""Each host has its own directory."""
PATIENCE = 90.0


def become(user: int) -> tuple[str, ...]:
    """The beginning of a command line that runs as a user."""
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()


def let_components_start(slurm_conf: Path) -> None:
    """Let heterogeneous jobs start within a second, instead of the default half minute.

    Slurm's backfill scheduler starts them.
    """
    before = "SchedulerParameters=batch_sched_delay=0"
    text = slurm_conf.read_text()
    assert before in text
    slurm_conf.write_text(text.replace(before, f"{before},bf_interval=1"))


class OptionHosts(SlurmHosts):
    """Hosts on which the option is installed as an administrator does."""

    count = 2

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """Running hosts. Skips the test if the plugin was not built."""
        try:
            find_plugin()
        except VicinalError as error:
            pytest.skip(str(error))
        # Other users must reach slurm.conf, and cannot reach a directory of pytest.
        directory = Path(tempfile.mkdtemp(prefix="vicinal-slurm-"))
        directory.chmod(0o755)
        try:
            with cls(cls.count, directory) as hosts:
                yield hosts
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def clean(self) -> Iterator[Self]:
        """Hosts without regions before and after the test."""
        wait_until(self.nothing_left)
        yield self
        wait_until(self.nothing_left)

    def prepare(self) -> None:
        done = self.at_head(VICINAL, "slurm", "install", *self.installed())
        assert done.returncode == 0, done.stderr

    def installed(self) -> tuple[object, ...]:
        """The options of the installation. Every user can reach the interpreter that makes nodes.

        It looks for packages where the test's environment has them.
        """
        script = self.directory / "python"
        script.write_text(
            '#!/bin/sh\n[ "$1" = -I ] || exit\nshift\n'
            f'PYTHONPATH={package_path()} exec {unprivileged_python()[-1]} -P "$@"\n'
        )
        script.chmod(0o755)
        return ("--directory", REGIONS, "--python", script)

    def regions(self, name: str) -> list[str]:
        """The contents of a host's directory of regions, with modes and owners."""
        regions = self.root(name) / REGIONS.lstrip("/")
        found = []
        for above, directories, files in os.walk(regions):
            for path in (Path(above, each) for each in (*directories, *files)):
                with suppress(FileNotFoundError):  # it may disappear at this moment
                    status = path.lstat()
                    mode = stat.S_IMODE(status.st_mode)
                    found.append(f"{path.relative_to(regions)} {mode:o} {status.st_uid}")
        return sorted(found)

    def running(self, name: str, program: str) -> list[psutil.Process]:
        """The processes of a program on a host."""
        return named(self.processes(name), program)

    def shown_region(self, copied: Path) -> dict[str, Any]:
        """The contents of a region that a task copied. Removes the copy.

        A node does not see every interpreter, so its tasks cannot show regions themselves.
        """
        done = self.vicinal("region", "show", "--json", copied)
        copied.unlink()
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def sleeping(self, seconds: str) -> list[psutil.Process]:
        """The processes on all hosts and in their nodes that sleep for this number of seconds."""
        found = []
        for name in self.names:
            first = psutil.Process(self.first_process(name))
            found += first.children(recursive=True)
        return [each for each in found if words_of(each)[1:] == [seconds]]

    def in_order(self) -> bool:
        """Whether nothing remains of jobs, and all hosts accept jobs."""
        idle = self.at_head("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split()
        return sorted(idle) == self.names and self.nothing_left()

    def nothing_left(self) -> bool:
        left = [
            each for name in self.names for each in (self.regions(name), self.supervisors(name))
        ]
        return not any(left) and not self.leftovers()

    def cluster_file(self, name: str, text: str) -> Path:
        """A cluster file that every user may read."""
        file = self.directory / name
        file.write_text(text)
        file.chmod(0o644)
        return file

    def supervisors(self, name: str) -> list[psutil.Process]:
        """The supervisors of jobs' nodes on a host, each the first process of a PID namespace."""
        host = pid_namespace(self.first_process(name))
        found = []
        for number in process_numbers():
            with suppress(OSError, psutil.Error):  # it may end at this moment
                words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
                if b"vicinal.integrations.slurm.supervisor" in words:
                    supervisor = psutil.Process(number)
                    if pid_namespace(parent_of(supervisor)) == host:
                        found.append(supervisor)
        return found

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        """Start a command of Slurm at the head, without output."""
        return subprocess.Popen(
            self.entered([str(word) for word in command]),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def waiting_job(self, *, user: int = 0, value: str = "region", **variables: str) -> str:
        """Start a job with this option on the first host, which waits. Returns its number."""
        option = f"--vicinal={value}"
        allocate = ("salloc", "-Q", option, "-wnode0", "-n1", "--no-shell", "--job-name=waits")
        done = self.at_head(*become(user), *allocate, **variables)
        assert done.returncode == 0, done.stderr
        listed = self.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.split()
        number = max(listed, key=int)
        step = ("srun", option, f"--jobid={number}", "--overlap", "--chdir=/", "true")
        done = self.at_head(*become(user), *step, **variables)
        assert done.returncode == 0, done.stderr
        return number


def region_of(supervisor: psutil.Process) -> Path:
    """The region file of a job's nodes, in a file system that only the supervisor has."""
    return Path(f"/proc/{supervisor.pid}/root{REGIONS}/region")


def wait_until(good: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.05)
