"""Values of words in a region; vicinal.region.records has the words' offsets."""

from enum import IntEnum


class SlotState(IntEnum):
    """The lower half of a member slot's claim word."""

    FREE = 0
    CLAIMED = 1
    """A member won the slot and is still writing its section."""
    JOINED = 2
    """The section is valid."""
    HELD = 3
    """The member left, but its process lives and has memory in the heap."""


class Liveness(IntEnum):
    """How peers detect that the owner of a section died."""

    LOCK = 1
    """The owner holds a lock on the byte of the region's file whose number is its slot."""
    HEARTBEAT = 2
    """The owner increments `heartbeat` ten times a second."""


class Route(IntEnum):
    """The current route of messages from the owner of a connection line."""

    REGION = 0
    SWITCHING = 1
    """The connection is changing from one route to the other."""
    NETWORK = 2
    """Messages use the network: there is no ring, and `id` is 0."""
    STAYS = 3
    """The network was requested, and no network between the two works."""
    ENDED = 4
    """Messages use the network for the rest of the job, because the pair found the region
    unusable."""


class RequestedRoute(IntEnum):
    """The manager's requested route to a member: the lower half of `requested_route`."""

    REGION = 0
    NETWORK = 1
    LEAVE = 2
    """Use the network, and then leave the region."""
    RETURN = 3
    """As REGION; a member that has left may also join again."""
