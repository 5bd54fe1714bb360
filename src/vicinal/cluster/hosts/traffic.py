"""What the regions of several hosts say of a job together."""

from collections.abc import Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import Request, ShareConnection, ask_all
from vicinal.mpi.traffic import JobTraffic, together


def far_traffic(connections: Sequence[ShareConnection], job: int) -> JobTraffic | None:
    """What the regions of all these hosts say of the job of this number; None where one has none.

    Raises VicinalError for a host that is lost, or says what no region has.
    """
    found = ask_all(connections, lambda each, _: each.ask(Request.TRAFFIC, {"job": job})).all()
    parts = [answer["traffic"] for answer in found.values()]
    if None in parts:
        return None
    try:
        return together(map(JobTraffic.from_dict, parts))
    except ValueError as error:
        raise VicinalError("a host says nothing sensible of its region", "run again") from error
