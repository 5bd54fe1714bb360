"""How a keeper has root do in its nodes' networks what only root can: it asks by a channel.

Root takes an open file that stands for a network, sees that it is this user's, and puts into it the
end of a cable that leads to the job's other hosts (job_network.py), or the interface of a function
that the job has. Or it lets this user open all of these (slurm/supervisor_network.h).
"""

import socket
from contextlib import ExitStack
from pathlib import Path

from vicinal.base.errors import VicinalError

UPLINK = "uplink"
"""The end of the cable, in the nodes' network."""
_JOIN, _LEND, _LEND_TO_MACHINES = b"n", b"f", b"m"


class Channel:
    """The keeper's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def join_hosts(self, network: Path) -> None:
        """Have UPLINK put into a network, which a file stands for.

        Raises VicinalError where root does not; why is said by root.
        """
        if not self._ask(_JOIN, network):
            raise VicinalError(
                "the nodes were not joined with those of the job's other hosts",
                "see what slurmd's log says of it",
            )

    def lend(self, number: int, network: Path) -> str:
        """Have the interface of a function put into a network; what it is called there.

        `number` is its place among those of the job on this host.
        """
        if not self._ask(_LEND + bytes([number]), network):
            raise _not_lent()
        return f"lent{number}"

    def lend_to_machines(self) -> None:
        """Have all functions of the job given to vfio-pci, where this user may open them."""
        if not self._ask(_LEND_TO_MACHINES):
            raise _not_lent()

    def _ask(self, words: bytes, network: Path | None = None) -> bool:
        with ExitStack() as files:
            opened = [] if network is None else [files.enter_context(network.open("rb"))]
            try:
                socket.send_fds(self._socket, [words], [file.fileno() for file in opened])
                return self._socket.recv(1) != b""
            except OSError:
                return False

    def close(self) -> None:
        """Say that nothing more is asked."""
        self._socket.close()


def _not_lent() -> VicinalError:
    return VicinalError(
        "the nodes did not get the job's SR-IOV functions", "see what slurmd's log says of it"
    )
