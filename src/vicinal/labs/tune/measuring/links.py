"""Whether the links of tuned interfaces stay up: a trial with one that was down measures that."""

import time
from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knobs.network import Link, Network
from vicinal.labs.tune.search.trial import SearchEndsError

_UP_SECONDS = 30.0
"""For a link that a driver took down for a new number of queues, and the other end's answer."""
_LOOK_SECONDS = 0.05


class LinkDroppedError(VicinalError):
    """A link that was down during a trial, and may be up again."""


class LinkWatch:
    """Watches some interfaces: that they are there, and the links that are up when it is made."""

    def __init__(self, network: Network, interfaces: Sequence[str]) -> None:
        self._network = network
        self._all = interfaces
        self._watched = [name for name, link in self._links(interfaces).items() if link.carrier]

    def check_there(self) -> None:
        """Raise SearchEndsError where one of the interfaces is gone."""
        links = self._links(self._all)
        for name in self._all:
            if name not in links:
                raise SearchEndsError(
                    f"there is no interface {name} any more",
                    "see where it went, and go on with --resume when it is back",
                )

    def settle(self, seconds: float = _UP_SECONDS) -> Mapping[str, int]:
        """Wait until all links are up, and return how often each changed, for `check`.

        Raises VicinalError for one that stays down, and as check_there() does.
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
                    "see its cable, and the other end",
                )
            time.sleep(_LOOK_SECONDS)

    def check(self, before: Mapping[str, int]) -> None:
        """Raise LinkDroppedError where one went down since `before`, or as check_there() does."""
        self.check_there()
        links = self._links(self._watched)
        for name, changes in before.items():
            if links[name].carrier_changes != changes:
                raise LinkDroppedError(
                    f"the link of {name} went down during the trial",
                    "see its cable, and the other end",
                )

    def _links(self, names: Sequence[str]) -> dict[str, Link]:
        if not names:
            return {}  # a search of variables asks for nothing
        return {each.name: each for each in self._network.links() if each.name in names}
