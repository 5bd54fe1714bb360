"""Interrupts between guests that share a region: the server for QEMU's ivshmem-doorbell."""

from dataclasses import dataclass
from pathlib import Path

VECTORS = 32
"""Interrupts of each guest: one for each domain of each rank; Open MPI has two domains a rank."""


@dataclass(frozen=True)
class Doorbell:
    """The server that a guest's device connects to."""

    socket: Path
    """Path of the server's socket."""
    vectors: int
    """Number of interrupts of each guest."""
