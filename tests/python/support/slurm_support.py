"""A Slurm cluster for tests: hosts of host_support, each with a slurmd, and a slurmctld at the
head.

Its munge has its own socket and key, so a Slurm of the machine itself is not affected.
"""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Self

import psutil
import pytest
from host_support import Hosts
from process_support import name_of, pid_namespace

from vicinal.cluster.nodes.layout import NODE_DIRECTORY

CPUS = 4
"""Processors of each host, as Slurm is told."""
UP_SECONDS = 60.0


class SlurmHosts(Hosts):
    """Hosts node0, node1, ... in one partition. Jobs are started at the head."""

    services = (*Hosts.services, "slurmd")

    def __init__(self, count: int, directory: Path) -> None:
        for tool in ("slurmctld", "slurmd", "salloc", "munged"):
            if shutil.which(tool) is None:
                pytest.skip(
                    f"{tool} is missing: apt-get install slurmctld slurmd slurm-client munge"
                )
        super().__init__(count, directory)
        self._state = directory / "slurm"

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._state.mkdir()
            self._configure()
            self.prepare()
            self._start()
        except BaseException:
            self.cluster.close()
            raise
        return self

    def environment(self, **variables: str) -> dict[str, str]:
        return super().environment(SLURM_CONF=str(self.slurm_conf), **variables)

    @property
    def slurm_conf(self) -> Path:
        return self._state / "slurm.conf"

    def prepare(self) -> None:
        """Prepare the hosts before Slurm's daemons start."""

    def _configure(self) -> None:
        key = self._state / "key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": "head",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self._state}/munge.socket",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "StateSaveLocation": self._state,
            "SlurmdSpoolDir": f"{self._state}/%n",
            "SlurmctldPidFile": f"{self._state}/slurmctld.pid",
            "SlurmdPidFile": f"{self._state}/%n.pid",
            "SlurmctldLogFile": f"{self._state}/slurmctld.log",
            "SlurmdLogFile": f"{self._state}/%n.log",
            # Containers often have no control groups to offer.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "SlurmdParameters": "config_overrides",
            "ReturnToService": 2,
            "MpiDefault": "none",
            "KillWait": 5,
            # Slurm waits up to three seconds for more batch jobs before it schedules the first.
            "SchedulerParameters": "batch_sched_delay=0",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines.append(f"NodeName={','.join(self.names)} CPUs={CPUS} State=UNKNOWN")
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP")
        self.slurm_conf.write_text("\n".join(lines) + "\n")
        # Each host has its own directory for PMIx, whose default is in the /tmp that all hosts
        # share.
        (self._state / "mpi.conf").write_text(f"PMIxCliTmpDirBase={NODE_DIRECTORY}\n")

    def _start(self) -> None:
        files = {
            "socket": "munge.socket",
            "key-file": "key",
            "pid-file": "munge.pid",
            "log-file": "munge.log",
            "seed-file": "seed",
        }
        options = [f"--{name}={self._state / file}" for name, file in files.items()]
        for command in (["munged", "--force", *options], ["slurmctld"]):
            done = self.at_head(*command)
            assert done.returncode == 0, done.stderr
        for name in self.names:
            self.start_slurmd(name)
        deadline = time.monotonic() + UP_SECONDS
        idle: list[str] = []
        while len(idle) < len(self.names):
            assert time.monotonic() < deadline, (self._state / "slurmctld.log").read_text()
            idle = self.at_head("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split()
            time.sleep(0.05)

    def start_slurmd(self, name: str) -> None:
        """Start a host's slurmd, which is ready some time later."""
        self.cluster.run_in(name, ["env", f"SLURM_CONF={self.slurm_conf}", "slurmd", "-N", name])

    # Hosts are inspected through /proc, without a new process in the host for each look. Tests look
    # many times a second until the expected state is there.

    def processes(self, name: str) -> list[psutil.Process]:
        """The processes of a host, without its first process."""
        first = self._first[name]
        inside = pid_namespace(first)
        found = []
        for number in process_numbers():
            if number != first and pid_namespace(number) == inside:
                with suppress(psutil.Error):  # it may end at this moment
                    found.append(psutil.Process(number))
        return found

    def root(self, name: str) -> Path:
        """The root directory of a host, as this process can reach it."""
        return Path(f"/proc/{self._first[name]}/root")

    def first_process(self, name: str) -> int:
        """The first process of a host. The host ends with it."""
        return self._first[name]

    @cached_property
    def _first(self) -> dict[str, int]:
        wanted = {node.pid_namespace: node.name for node in self.cluster.nodes}
        found = {}
        for number in process_numbers():
            name = wanted.get(pid_namespace(number))
            if name is not None and number_inside(number) == 1:
                found[name] = number
        assert found.keys() == set(self.names)
        return found

    def leftovers(self) -> dict[str, Sequence[str]]:
        left: dict[str, Sequence[str]] = {}
        for name in self.names:
            # Killed ranks of MPICH leave files of their own there, with and without Vicinal.
            listed = os.listdir(self.root(name) / "dev/shm")  # noqa: PTH208
            files = [file for file in listed if not file.startswith("mpich_shm")]
            names = map(name_of, self.processes(name))
            processes = [each for each in names if each and each not in self.services]
            if files or processes:
                left[name] = [*files, *processes]
        return left


def process_numbers() -> Iterator[int]:
    """The numbers of all processes of this machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def number_inside(process: int) -> int:
    """The number of a process in its own PID namespace, or 0 if it has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))
    return 0
