"""Checks that the links of tuned interfaces stay up: a dropped link would distort the trial."""

import time
from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knobs.network import Link, Network
from vicinal.labs.tune.search.trial import SearchEndsError

_UP_SECONDS = 30.0
"""For a link that a driver took down to change the number of queues, including the peer's
answer.
"""
_LOOK_SECONDS = 0.05


class LinkDroppedError(VicinalError):
    """A link went down during a trial; it may be up again."""


class LinkWatch:
    """Watches that interfaces exist, and that links that are up at the start stay up."""

    def __init__(self, network: Network, interfaces: Sequence[str]) -> None:
        self._network = network
        self._all = interfaces
        self._watched = [name for name, link in self._links(interfaces).items() if link.carrier]

    def check_there(self) -> None:
        """Raise SearchEndsError if an interface no longer exists."""
        links = self._links(self._all)
        for name in self._all:
            if name not in links:
                raise SearchEndsError(
                    f"the interface {name} no longer exists",
                    "find out why, and continue with --resume when the interface is back",
                )

    def settle(self, seconds: float = _UP_SECONDS) -> Mapping[str, int]:
        """Wait until all links are up; returns the number of changes of each link, for `check`.

        Raises VicinalError if a link stays down, and as check_there() does.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.check_there()
            links = self._links(self._watched)
            down = [name for name, link in links.items() if not link.carrier]
            if not down:
                return {name: link.carrier_changes for name, link in links.items()}
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"the link of {down[0]} is down, and was up before",
                    "check its cable, and the other end",
                )
            time.sleep(_LOOK_SECONDS)

    def check(self, before: Mapping[str, int]) -> None:
        """Raise LinkDroppedError if a link went down since `before`, and as check_there() does."""
        self.check_there()
        links = self._links(self._watched)
        for name, changes in before.items():
            if links[name].carrier_changes != changes:
                raise LinkDroppedError(
                    f"the link of {name} went down during the trial",
                    "check its cable, and the other end",
                )

    def _links(self, names: Sequence[str]) -> dict[str, Link]:
        if not names:
            return {}  # a search of variables has no interfaces
        return {each.name: each for each in self._network.links() if each.name in names}
