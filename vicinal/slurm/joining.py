"""How a keeper has its nodes joined with those of the job's other hosts: it asks root.

Root takes an open file that stands for the nodes' network, sees that it is this user's, and puts
the end of a cable into it (slurm/keeper_network.h, job_network.py).
"""

import socket
from pathlib import Path

from vicinal.errors import VicinalError

UPLINK = "uplink"
"""The end of the cable, in the nodes' network."""


def join_hosts(channel: int, network: Path) -> None:
    """Have UPLINK put into a network, which a file stands for; the channel is closed then.

    Raises VicinalError where root does not; why is said by root.
    """
    with socket.socket(fileno=channel) as asked, network.open("rb") as file:
        try:
            socket.send_fds(asked, [b"n"], [file.fileno()])
            joined = asked.recv(1) != b""
        except OSError:
            joined = False
    if not joined:
        raise VicinalError(
            "the nodes were not joined with those of the job's other hosts",
            "see what slurmd's log says of it",
        )
