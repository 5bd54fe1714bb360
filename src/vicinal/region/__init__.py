"""The shared region in Python: creating, inspecting and checking a region, moving members to the
network and back, and removing the region.

docs/reference/region-format.md describes the format; vicinal.region.records has the byte layout.

Each module is imported on first use, so that creating a region does not load the other modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:
    _MODULES = {
        "checking": "Finding check",
        "creation": "DEFAULT_MEMBERS DEFAULT_SECTION_BYTES Region create remove",
        "detaching": "Outcome attach detach leave",
        "inspection": "Beyond Connection Header Home Member RegionState inspect",
    }

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names.split():
                return getattr(import_module(f"vicinal.region.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
