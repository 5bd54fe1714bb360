"""What words of a region can say; where they lie is in vicinal.region.records."""

from enum import IntEnum


class SlotState(IntEnum):
    """The lower half of a member slot's claim word."""

    FREE = 0
    CLAIMED = 1
    """Won by a member that is still writing its section."""
    JOINED = 2
    """Its section is valid."""
    HELD = 3
    """Its member left, but the member's process lives and has memory in the heap."""


class Liveness(IntEnum):
    """How others find out that the owner of a section died."""

    LOCK = 1
    """It holds a lock on the byte of the region's file that has its slot's number."""
    HEARTBEAT = 2
    """It counts `heartbeat` up, ten times a second."""


class Route(IntEnum):
    """How what the owner of a connection line sends goes now."""

    REGION = 0
    SWITCHING = 1
    """It changes just now from one route to the other."""
    NETWORK = 2
    """There is no ring then, and `id` is 0."""
    STAYS = 3
    """It is to go over the network, and there is none that works."""
    ENDED = 4
    """Over the network for good: the region was of no use for the two."""


class RequestedRoute(IntEnum):
    """How the manager wants a member to be reached: the lower half of `requested_route`."""

    REGION = 0
    NETWORK = 1
    LEAVE = 2
    """Over the network, and then it leaves the region."""
    RETURN = 3
    """As REGION; and if it has left, it may come back."""
