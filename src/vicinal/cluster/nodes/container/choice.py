"""Which container runtimes this host has, and which runtime creates a node."""

from collections.abc import Callable

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.bubblewrap import Bubblewrap
from vicinal.cluster.nodes.container.oci import OciRuntime
from vicinal.cluster.nodes.container.runtime import Runtime
from vicinal.cluster.nodes.network import find_tool

_RUNTIMES: dict[str, tuple[str, Callable[[str], Runtime]]] = {
    "crun": ("crun", lambda program: OciRuntime("crun", program)),
    "runc": ("runc", lambda program: OciRuntime("runc", program)),
    "bubblewrap": ("bwrap", Bubblewrap),
}
RUNTIMES = tuple(_RUNTIMES)
"""Names of the runtimes. By default, the first installed runtime in this order is used."""


def available_runtimes() -> list[Runtime]:
    """Return the installed runtimes, in the order of RUNTIMES."""
    found = []
    for program, make in _RUNTIMES.values():
        path = find_tool(program)
        if path is not None:
            found.append(make(path))
    return found


def choose_runtime(name: str | None = None) -> Runtime:
    """Return the runtime with this name, or the first that is installed.

    Raises VicinalError if there is no such runtime, or if it is not installed.
    """
    if name is not None and name not in RUNTIMES:
        raise VicinalError(f"{name!r} is no container runtime", f"take {', '.join(RUNTIMES)}")
    found = [each for each in available_runtimes() if name in (None, each.name)]
    if not found:
        raise VicinalError(
            f"the container runtime {name} was not found"
            if name
            else "no container runtime was found",
            f"install {name or 'crun, runc or bubblewrap'}",
        )
    return found[0]
