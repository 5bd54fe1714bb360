"""The connection to a host of a job."""

import json
from typing import Any

from vicinal.cluster.hosts.remote.agent_connection import AgentConnection
from vicinal.launch.host_agent import MARK, HostRequest

AGENT_MODULE = "vicinal.launch.host_agent"


class HostConnection(AgentConnection):
    """An agent on a host, from ask() to close()."""

    module = AGENT_MODULE
    mark = MARK
    part = "the job"

    def ask(self, request: HostRequest) -> None:
        """Send what the host shall do; whether it could answered() tells."""
        self._send(json.dumps(request.to_dict()))

    def answered(self) -> None:
        """Wait until the host is ready; raises VicinalError that names it where it will not be."""
        self._receive()

    def traffic(self) -> dict[str, Any]:
        """What the host's region says of the job; raises VicinalError where it cannot be had."""
        self._send("traffic")
        found = self._receive().get("traffic")
        if not isinstance(found, dict):
            raise self._trouble("it says nothing of its region", "see whether it is busy")
        return found

    def check(self) -> None:
        """Raise VicinalError where the host does not answer any more."""
        self._send("here?")
        self._receive()
