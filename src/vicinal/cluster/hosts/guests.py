"""The virtual machines of a cluster over several hosts, as a job's launcher needs them.

A command gets into a machine by ssh to its host, and from there as that host's own commands do.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.entered import EnteredShares
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


def far_command(
    record: HostRecord, node: str, command: Sequence[str], *, tty: bool = False
) -> list[str]:
    """The command line that runs `command` in a node of another host, by `vicinal exec` there."""
    own = [*searching(), sys.executable, "-P", "-m", "vicinal", "exec"]
    own += ["--cluster", record.share, node, *command]
    if record.is_this:
        return own
    ssh, *rest = Reach.SSH.command(record.host, own)
    # Else it would say on the terminal that the connection was closed.
    return [ssh, "-t" if tty else "-T", "-o", "LogLevel=ERROR", *rest]


class FarGuest(GuestCommands):
    """One machine, wherever it is."""

    def __init__(self, record: HostRecord, name: str) -> None:
        self.name = name
        self._record = record

    def command(
        self, command: Sequence[str], environment: Mapping[str, str], *, tty: bool = False
    ) -> list[str]:
        """The command line on this host that runs a command in the machine as its user."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        inside = ["env", *variables, *command] if variables else list(command)
        return far_command(self._record, self.name, inside, tty=tty)

    def is_lost(self, status: int) -> bool:
        """Whether it was one of the connections that ended with this status."""
        return status == SSH_FAILED

    def failure(self, what: str) -> VicinalError:
        """The error that says what is wrong with the machine."""
        line = shlex.join(["vicinal", "exec", "--cluster", self._record.cluster, self.name, "true"])
        return VicinalError(
            f"{self.name} on {self._record.host}: {what}", f"see what `{line}` says"
        )


class NoImage:
    """What machines of other hosts have from the start is not asked for: programs are copied."""

    def has(self, path: Path) -> bool:
        """Nothing, as far as we know."""
        del path
        return False


class FarGuests:
    """All machines of a cluster over several hosts, host by host; `enter()` first, `close()` last.

    Raises VicinalError where its nodes are none, or have no network in common.
    """

    network = GuestNetwork.VIRTIO

    def __init__(self, name: str, records: Sequence[HostRecord]) -> None:
        others = [node for each in records for node in each.nodes if node not in each.machines]
        if others:
            raise VicinalError(
                f"{others[0]} of {name} is a native node, and these do not reach each other "
                "from host to host",
                "start the job on the hosts themselves: vicinal run --hosts "
                + ",".join(record.host for record in records),
            )
        self.guests = [FarGuest(record, each) for record in records for each in record.machines]
        self.image = NoImage()
        self._records = records
        self._shares = EnteredShares(records)
        self._ranks: int | None = None
        self._heap = False

    def has(self, node: str) -> bool:
        return any(node in record.nodes for record in self._records)

    def exec_command(self, node: str, command: Sequence[str], *, tty: bool = False) -> list[str]:
        record = next(each for each in self._records if node in each.nodes)
        return far_command(record, node, command, tty=tty)

    def start_job(self, job: Job, launchers: Launchers) -> StartedJob:
        return launchers.in_first_guest(job, self)

    @property
    def alone(self) -> frozenset[str]:
        """Names of those that have no network with the others."""
        return frozenset(name for record in self._records for name in record.alone)

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Have enter() raise VicinalError where a host's region has no room for its ranks."""
        self._ranks, self._heap = ranks, heap

    def enter(self) -> None:
        """See that there is a connection to each machine, and room in the regions."""
        self._shares.enter([each.name for each in self.guests], self._ranks, heap=self._heap)

    def traffic(self, job: int) -> JobTraffic | None:
        """What the regions of all hosts say of the job of this number; None without regions."""
        return self._shares.traffic(job)

    def inspect_all(self) -> tuple[RegionState, ...]:
        """None of the regions is this host's to look at."""
        return ()

    def check(self) -> None:
        """Raise VicinalError for a machine that ended, or a host that is lost."""
        self._shares.check()

    def close(self) -> None:
        """End the agents."""
        self._shares.close()
