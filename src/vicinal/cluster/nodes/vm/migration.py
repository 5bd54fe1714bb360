"""Moving a virtual machine of a cluster to another host while jobs run in it.

Its ranks leave the region for the network, the guest gives up the region's device and its
functions, the machine moves, and gets those of the other host; then its ranks find the region
there. Each step is undone where a later one fails or is interrupted.
"""

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.ranks import Endpoint, Return
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.libvirt.migrate import Moved, migrate
from vicinal.cluster.vm.libvirt.side import Side

MOVE_SECONDS = 300.0
"""For each step, unless a user says otherwise: a guest that is busy takes its time."""

_BACK_SECONDS = 15.0
"""For ranks to find a region: they look for one once a second."""


class HostPart(Protocol):
    """What one host does for the move of a machine."""

    @property
    def domain(self) -> str:
        """The machine's name in libvirt."""

    @property
    def accelerator(self) -> Accelerator:
        """What executes machines there."""

    def check_leaves(self) -> None:
        """Raise VicinalError where the machine cannot leave this host now."""

    def check_comes(self) -> None:
        """Raise VicinalError where there is no room for it here."""

    def send_out(self, seconds: float) -> tuple[Endpoint, ...]:
        """Have its ranks leave this host's region: ranks.send_out()."""

    def close(self) -> None:
        """End the connections to it: a guest that moves does not see that they end."""

    def call_back(self) -> None:
        """Let its ranks come back: ranks.call_back()."""

    def await_back(self, whom: Collection[Endpoint], seconds: float) -> Return:
        """Wait until they are in this host's region: ranks.await_back()."""

    def side(self) -> Side:
        """What its domain has here."""


@dataclass(frozen=True)
class Report:
    """What became of a move."""

    ranks: int
    """So many endpoints of ranks were in the region before."""
    back: Return
    """What became of these in the other host's."""
    leaving_seconds: float
    """Until the ranks had left."""
    moved: Moved


def move_machine(
    here: HostPart,
    there: HostPart,
    *,
    seconds: float = MOVE_SECONDS,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Move a machine from one host to another; `seconds` are for each step.

    Raises VicinalError, with the machine and its ranks as before, where that cannot be.
    """
    here.check_leaves()
    if here.accelerator is not there.accelerator:
        raise VicinalError(
            f"machines are executed by {here.accelerator.value.upper()} here, and by "
            f"{there.accelerator.value.upper()} there",
            "choose a host that has the same",
        )
    there.check_comes()
    began = time.monotonic()
    with ExitStack() as undo:
        undo.callback(here.call_back)  # after the devices are back
        ranks = here.send_out(seconds)
        left = time.monotonic()
        say(f"{len(ranks)} ranks are out of its region" if ranks else "no rank is in its region")
        here.close()
        moved = migrate(here.domain, here.side(), there.side(), seconds=seconds)
        undo.pop_all()
    say("it has moved")
    back = there.await_back(ranks, _BACK_SECONDS)
    return Report(len(ranks), back, left - began, moved)
