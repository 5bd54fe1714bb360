"""The agents of all hosts of a cluster while a job runs in the nodes of these hosts."""

import time
from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import Request, ShareConnection, ask_all
from vicinal.cluster.hosts.record import HostRecord
from vicinal.mpi.placement import place
from vicinal.mpi.traffic import JobTraffic, together

_CHECK_SECONDS = 5.0
"""How often hosts are asked whether their nodes still run."""


class EnteredShares:
    """What hosts say of their shares of a cluster; `enter()` first, `close()` last."""

    def __init__(self, records: Sequence[HostRecord]) -> None:
        self._records = {record.host: record for record in records}
        self._connections: list[ShareConnection] = []
        self._checked = 0.0

    def enter(self, nodes: Sequence[str], ranks: int | None, *, heap: bool) -> None:
        """Connect to all hosts, and see that their nodes run. Raises VicinalError.

        With `ranks`, which are placed on `nodes` in order, each host's region must have room for
        the host's ranks, and with `heap` a heap.
        """
        placed = [] if ranks is None else place(ranks, nodes)
        self._connections = [ShareConnection(host) for host in self._records]

        def ask(connection: ShareConnection) -> None:
            connection.hello()
            record = self._records[connection.name]
            count = sum(each.ranks for each in placed if each.node in record.nodes)
            asked = {"share": record.share, "ranks": None if ranks is None else count, "heap": heap}
            connection.ask(Request.ENTER, asked)

        ask_all(self._connections, lambda each, _: ask(each)).all()
        self._checked = time.monotonic()

    def check(self) -> None:
        """Raise VicinalError for a node that ended, or a host that is lost; asks now and then."""
        if time.monotonic() - self._checked > _CHECK_SECONDS:
            ask_all(self._connections, lambda each, _: each.ask(Request.CHECK)).all()
            self._checked = time.monotonic()

    def traffic(self, job: int) -> JobTraffic | None:
        """What the regions of all hosts say of the job of this number; None where one has none.

        Raises VicinalError for a host that is lost, or says what no region has.
        """
        found = ask_all(self._connections, lambda each, _: each.ask(Request.TRAFFIC, {"job": job}))
        parts = [answer["traffic"] for answer in found.all().values()]
        if None in parts:
            return None
        try:
            return together(map(JobTraffic.from_dict, parts))
        except ValueError as error:
            raise VicinalError("a host says nothing sensible of its region", "run again") from error

    def close(self) -> None:
        """End the agents."""
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.hang_up()
        for connection in connections:
            connection.close()
