"""The shared region, as seen from Python: create it, look into it, check it, move members
to the network and back, remove it.

docs/reference/region-format.md describes the format; vicinal.region.records has its bytes.

Each is loaded when it is asked for: who only makes a region does without the rest.
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
