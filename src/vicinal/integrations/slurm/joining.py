"""The channel by which a supervisor asks root for work that only root can do in the nodes'
networks.

Root receives an open file of a network namespace, and checks that the namespace belongs to this
user. Then root puts into the namespace the end of a cable to the job's other hosts
(job_network.py), or the interface of one of the job's VFs. Or root lets this user open all
VFs (slurm/supervisor_network.h).
"""

import socket
from contextlib import ExitStack
from pathlib import Path

from vicinal.base.errors import VicinalError

UPLINK = "uplink"
"""The name of the cable's end in the nodes' network."""
_JOIN, _GRANT, _GRANT_TO_VMS = b"n", b"f", b"m"


class Channel:
    """The supervisor's end of the channel."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def join_hosts(self, network: Path) -> None:
        """Ask root to put UPLINK into the network namespace of this file.

        Raises VicinalError if root refuses; root writes the cause into slurmd's log.
        """
        if not self._ask(_JOIN, network):
            raise VicinalError(
                "the nodes were not connected to the nodes on the job's other hosts",
                "see slurmd's log for the cause",
            )

    def grant(self, number: int, network: Path) -> str:
        """Ask root to put a VF's interface into a network; returns the interface's name
        there.

        `number` is the VF's index among the job's VFs on this host. Raises VicinalError
        if root refuses.
        """
        if not self._ask(_GRANT + bytes([number]), network):
            raise _not_granted()
        return f"vf{number}"

    def grant_to_vms(self) -> None:
        """Ask root to bind all VFs of the job to vfio-pci, and to let this user open them.

        Raises VicinalError if root refuses.
        """
        if not self._ask(_GRANT_TO_VMS):
            raise _not_granted()

    def _ask(self, words: bytes, network: Path | None = None) -> bool:
        with ExitStack() as files:
            opened = [] if network is None else [files.enter_context(network.open("rb"))]
            try:
                socket.send_fds(self._socket, [words], [file.fileno() for file in opened])
                return self._socket.recv(1) != b""
            except OSError:
                return False

    def close(self) -> None:
        """Close the channel: root ends its side."""
        self._socket.close()


def _not_granted() -> VicinalError:
    return VicinalError(
        "the nodes did not get the job's SR-IOV VFs", "see slurmd's log for the cause"
    )
