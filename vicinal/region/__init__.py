"""The shared region, as seen from Python: create it, look into it, check it, move members
to the network and back, remove it.

docs/region-format.md describes the format; vicinal.region.format has its bytes.
"""

from vicinal.region.checking import Finding, check
from vicinal.region.creation import (
    DEFAULT_MEMBERS,
    DEFAULT_SECTION_BYTES,
    Region,
    create,
    remove,
)
from vicinal.region.detaching import Outcome, attach, detach, leave
from vicinal.region.inspection import (
    Beyond,
    Connection,
    Header,
    Home,
    Member,
    RegionState,
    inspect,
)

__all__ = [
    "DEFAULT_MEMBERS",
    "DEFAULT_SECTION_BYTES",
    "Beyond",
    "Connection",
    "Finding",
    "Header",
    "Home",
    "Member",
    "Outcome",
    "Region",
    "RegionState",
    "attach",
    "check",
    "create",
    "detach",
    "inspect",
    "leave",
    "remove",
]
