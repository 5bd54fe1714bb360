"""The VMs of a cluster over several hosts, for the launcher of a job.

A command reaches a VM by ssh to the VM's host, and from there as the host's own commands do.
"""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.entered import EnteredHostParts
from vicinal.cluster.hosts.record import HostRecord
from vicinal.cluster.hosts.remote.agent_connection import searching
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.nodes.job_nodes import Launchers
from vicinal.cluster.vm.guest.commands import SSH_FAILED, GuestCommands
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.mpi.job import Job
from vicinal.mpi.started import StartedJob
from vicinal.mpi.traffic import JobTraffic
from vicinal.region import RegionState


def record_of(records: Iterable[HostRecord], node: str) -> HostRecord:
    """Return the record of the host that has a node. Raises VicinalError if no host has it."""
    for record in records:
        if node in record.nodes:
            return record
    raise VicinalError(f"no host of the cluster has a node {node!r}", "check `vicinal status`")


def far_command(
    record: HostRecord, node: str, command: Sequence[str], *, tty: bool = False
) -> list[str]:
    """Return the command line that runs `command` in a node, by `vicinal exec` on its host."""
    own = [*searching(), sys.executable, "-P", "-m", "vicinal", "exec"]
    own += ["--cluster", record.host_part, node, *command]
    if record.is_this:
        return own
    ssh, *rest = Reach.SSH.command(record.host, own)
    # Otherwise ssh prints on the terminal that the connection was closed.
    return [ssh, "-t" if tty else "-T", "-o", "LogLevel=ERROR", *rest]


class FarGuest(GuestCommands):
    """A VM on any host of the cluster."""

    def __init__(self, record: HostRecord, name: str) -> None:
        self.name = name
        self._record = record

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """Return the command line on this host that runs a command in the VM as its user."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        inside = ["env", *variables, *command] if variables else list(command)
        return far_command(self._record, self.name, inside, tty=tty)

    def is_lost(self, status: int) -> bool:
        """Whether an exit status means that an ssh connection ended, not the command."""
        return status == SSH_FAILED

    def failure(self, what: str) -> VicinalError:
        """Return an error that names the VM, its host and what is wrong."""
        line = shlex.join(["vicinal", "exec", "--cluster", self._record.cluster, self.name, "true"])
        return VicinalError(
            f"{self.name} on {self._record.host}: {what}", f"check the output of `{line}`"
        )


class NoImage:
    """The unknown image of VMs on other hosts: programs are always copied."""

    def has(self, path: Path) -> bool:
        """Return False: the image's files are unknown."""
        del path
        return False


class FarGuests:
    """All VMs of a cluster over several hosts, ordered by host.

    Call enter() first and close() at the end. Raises VicinalError if a node is the host itself.
    """

    network = GuestNetwork.VIRTIO

    def __init__(self, name: str, records: Sequence[HostRecord]) -> None:
        others = [node for each in records for node in each.nodes if node not in each.vms]
        if others:
            raise VicinalError(
                f"{others[0]} of {name} is a host node, and host nodes of different hosts do "
                "not reach each other",
                "start the job on the hosts themselves: vicinal run --hosts "
                + ",".join(record.host for record in records),
            )
        self.guests = [FarGuest(record, each) for record in records for each in record.vms]
        self.image = NoImage()
        self._records = records
        self._host_parts = EnteredHostParts(records)
        self._ranks: int | None = None
        self._heap = False

    def has(self, node: str) -> bool:
        return any(node in record.nodes for record in self._records)

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        return far_command(record_of(self._records, node), node, command, tty=tty)

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        return launchers.in_first_guest(job, self)

    @property
    def alone(self) -> frozenset[str]:
        """Names of the VMs that have no network with the other VMs."""
        return frozenset(name for record in self._records for name in record.alone)

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Make enter() raise VicinalError if a host's region has no room for its ranks."""
        self._ranks, self._heap = ranks, heap

    def enter(self) -> None:
        """Connect to all hosts, and check that their VMs run and their regions have room."""
        self._host_parts.enter([each.name for each in self.guests], self._ranks, heap=self._heap)

    def traffic(self, job: int) -> JobTraffic | None:
        """Return what all hosts' regions count of a job; None without regions."""
        return self._host_parts.traffic(job)

    def inspect_all(self) -> tuple[RegionState, ...]:
        """Return no regions: this host cannot read those of other hosts."""
        return ()

    def check(self) -> None:
        """Raise VicinalError if a VM ended or a host is lost."""
        self._host_parts.check()

    def close(self) -> None:
        """End the agents."""
        self._host_parts.close()
