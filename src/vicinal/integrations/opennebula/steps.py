"""What two hosts say to each other while a VM moves from one to the other."""

from enum import StrEnum
from typing import Any, Protocol

MARK = "vicinal-one "
"""What answers begin with: a login may write there too."""


class Step(StrEnum):
    """What the other host is asked for."""

    HELLO = "hello"
    """Its version must be ours."""
    PLACE = "place"
    """Have the processors and NUMA nodes that the VM's domain names."""
    EXPECT = "expect"
    """Have there what the VM is to get, and keep it for the VM."""
    GIVE = "give"
    """The VM has moved: it gets that."""
    SEND_BACK = "send back"
    """It moves back, without that."""
    OVER = "over"
    """The move is, whatever came of it; without that word its driver was killed, or is cut off."""


class Destination(Protocol):
    """The other host's part in a move."""

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """Have a step done. Raises VicinalError, with the host's name, where it fails."""
