"""Moving a virtual machine of a cluster to another host while jobs run in it.

The VM's ranks leave the region and use the network. The guest gives up the region's device and
its VFs, the VM moves, and gets the devices of the other host. Then its ranks join the
region there. If a step fails or is interrupted, the earlier steps are undone.
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
"""Time limit of each step, unless the user gives another: a busy guest is slow."""

_BACK_SECONDS = 15.0
"""Time limit for ranks to find a region: they look for one once a second."""


class MigrationHost(Protocol):
    """What one host does in the move of a VM."""

    @property
    def domain(self) -> str:
        """The VM's name in libvirt."""

    @property
    def accelerator(self) -> Accelerator:
        """What executes VMs on this host."""

    def check_leaves(self) -> None:
        """Raise VicinalError if the VM cannot leave this host now."""

    def check_comes(self) -> None:
        """Raise VicinalError if this host cannot receive the VM."""

    def send_out(self, seconds: float) -> tuple[Endpoint, ...]:
        """Make the VM's ranks leave this host's region; see ranks.send_out()."""

    def close(self) -> None:
        """End the connections to the VM, because a moved guest does not notice their end."""

    def call_back(self) -> None:
        """Let the VM's ranks return to the region; see ranks.call_back()."""

    def await_back(self, whom: Collection[Endpoint], seconds: float) -> Return:
        """Wait until the ranks are in this host's region; see ranks.await_back()."""

    def side(self) -> Side:
        """What the VM's domain has on this host."""


@dataclass(frozen=True)
class Report:
    """The outcome of a move."""

    ranks: int
    """Number of endpoints of ranks that were in the region before the move."""
    back: Return
    """Where these endpoints are after the move."""
    leaving_seconds: float
    """Time until the ranks had left, in seconds."""
    moved: Moved


def move_vm(
    here: MigrationHost,
    there: MigrationHost,
    *,
    seconds: float = MOVE_SECONDS,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Move a VM from one host to another; `seconds` is the time limit of each step.

    Raises VicinalError if the VM cannot move. The VM and its ranks are then as before.
    """
    here.check_leaves()
    if here.accelerator is not there.accelerator:
        raise VicinalError(
            f"{here.accelerator.value.upper()} executes VMs on this host, and "
            f"{there.accelerator.value.upper()} on the other host",
            "choose a host with the same accelerator",
        )
    there.check_comes()
    began = time.monotonic()
    with ExitStack() as undo:
        undo.callback(here.call_back)  # runs after the devices are restored
        ranks = here.send_out(seconds)
        left = time.monotonic()
        say(f"{len(ranks)} ranks have left the region" if ranks else "no rank is in the region")
        here.close()
        moved = migrate(here.domain, here.side(), there.side(), seconds=seconds)
        undo.pop_all()
    say("the VM has moved")
    back = there.await_back(ranks, _BACK_SECONDS)
    return Report(len(ranks), back, left - began, moved)
