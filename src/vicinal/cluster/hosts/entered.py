"""The agents of a cluster's hosts while a job runs in the hosts' nodes."""

import time
from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import HostPartConnection, Request, ask_all
from vicinal.cluster.hosts.record import HostRecord
from vicinal.mpi.placement import place
from vicinal.mpi.traffic import JobTraffic, merge_traffic

_CHECK_SECONDS = 5.0
"""Interval between checks whether the hosts' nodes still run."""


class EnteredHostParts:
    """A cluster's parts, for one job; call enter() first and close() at the end."""

    def __init__(self, records: Sequence[HostRecord]) -> None:
        self._records = {record.host: record for record in records}
        self._connections: list[HostPartConnection] = []
        self._checked = 0.0

    def enter(self, nodes: Sequence[str], ranks: int | None, *, heap: bool) -> None:
        """Connect to all hosts, and check that their nodes run. Raises VicinalError.

        With `ranks`, which are placed on `nodes` in order, each host's region must have room for
        the host's ranks; with `heap`, it must have heaps.
        """
        placed = [] if ranks is None else place(ranks, nodes)
        self._connections = [HostPartConnection(host) for host in self._records]

        def ask(connection: HostPartConnection) -> None:
            connection.hello()
            record = self._records[connection.name]
            count = sum(each.ranks for each in placed if each.node in record.nodes)
            asked = {
                "host_part": record.host_part,
                "ranks": None if ranks is None else count,
                "heap": heap,
            }
            connection.ask(Request.ENTER, asked)

        ask_all(self._connections, lambda each, _: ask(each)).all()
        self._checked = time.monotonic()

    def check(self) -> None:
        """Raise VicinalError if a node ended or a host is lost; the hosts are asked every 5 s."""
        if time.monotonic() - self._checked > _CHECK_SECONDS:
            ask_all(self._connections, lambda each, _: each.ask(Request.CHECK)).all()
            self._checked = time.monotonic()

    def traffic(self, job: int) -> JobTraffic | None:
        """Return what all hosts' regions count of a job; None if a host has no region.

        Raises VicinalError if a host is lost or its answer is malformed.
        """
        found = ask_all(self._connections, lambda each, _: each.ask(Request.TRAFFIC, {"job": job}))
        parts = [answer["traffic"] for answer in found.all().values()]
        if None in parts:
            return None
        try:
            return merge_traffic(map(JobTraffic.from_dict, parts))
        except ValueError as error:
            raise VicinalError(
                "a host's answer about its region is malformed", "run the job again"
            ) from error

    def close(self) -> None:
        """End the agents."""
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.close()
