"""Making virtual functions, assigning them to an owner such as a cluster, and taking them back.

    functions = Functions()
    functions.create("eth1", 2, owner="job-4711")
    given = functions.assign("eth1", owner="job-4711", settings=Settings(mac="52:54:00:12:34:56"))
    functions.release([given.address])
    functions.remove("eth1")

An assignment that fails, or is interrupted, is undone; one that was killed is in the records, and
`release` undoes it then.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal.errors import VicinalError
from vicinal.host.functions import infiniband
from vicinal.host.functions.helper import Helper, ask_helper
from vicinal.host.functions.privileged.system import VFIO, Host
from vicinal.host.functions.settings import Settings
from vicinal.host.functions.sysfs import (
    INFINIBAND,
    PhysicalFunction,
    VirtualFunction,
    all_functions,
    find_card,
    find_function,
    physical_functions,
    read_records,
)

_APPEAR_SECONDS = 30.0
_POLL_SECONDS = 0.05


class _JustTakenError(VicinalError):
    """Another command was quicker, be it of the same owner or of another."""


class Functions:
    """The virtual functions of a host."""

    def __init__(self, host: Host | None = None, helper: Helper = ask_helper) -> None:
        self.host = host or Host()
        self._helper = helper

    def cards(self) -> list[PhysicalFunction]:
        """The cards and their functions as they are now."""
        return physical_functions(self.host)

    def create(self, card: str, count: int, *, owner: str) -> PhysicalFunction:
        """Have a card make this many functions, and wait until they are there.

        With as many there already it does nothing, whoever made them.
        """
        found = find_card(self.cards(), card)
        if count < 1:
            raise VicinalError(f"{count} functions cannot be made", "give a number from 1")
        try:
            self._helper("count", physical=found.address, count=count, owner=owner)
            return self._wait_functions(found.address, count)
        except BaseException:
            # Interrupted, most likely: those that were there before are not made again.
            now = find_card(self.cards(), found.address)
            if not found.functions and now.functions and now.owner == owner:
                self._helper("count", physical=found.address, count=0, owner=owner)
            raise

    def remove(self, card: str, *, owner: str | None = None) -> int:
        """Remove all functions of a card, none of which may be assigned or in use.

        Returns how many there were. Without `owner` it does not matter whose they are.
        """
        found = find_card(self.cards(), card)
        whose = owner or found.owner or "vicinal"
        answer = self._helper("count", physical=found.address, count=0, owner=whose)
        return int(answer["before"])

    def clear(self, owner: str) -> list[str]:
        """Take back all that an owner has: what is assigned to it, and what was made for it.

        Functions of other owners on a card of its own keep that as it is, with an error. Returns
        what could not be put back, in words. It does nothing where there is nothing.
        """
        notes = self.release([], owner=owner)
        for card in self.cards():
            if card.owner == owner:
                self.remove(card.address, owner=owner)
        return notes

    def assign(
        self,
        name: str,
        *,
        owner: str,
        settings: Settings | Callable[[VirtualFunction], Settings] | None = None,
        vfio: bool = False,
        rebind: bool = True,
        wait: float = 30.0,
    ) -> VirtualFunction:
        """Give a function to an owner: set it up, and bind it to vfio-pci or its own driver.

        Without `rebind` whichever driver has it keeps it: for what no driver reads, such as rates.
        `name` is a function, or a card whose first free function is taken; `settings` may depend
        on which that is. An InfiniBand function that stays with this host is waited for until its
        port is ACTIVE, `wait` seconds; 0: not at all. Whether the port of one for vfio-pci comes up
        shows only in the guest.
        """
        while True:
            cards = self.cards()
            function = self._choose(cards, name, owner)
            chosen = settings(function) if callable(settings) else settings or Settings()
            wanted = self._wanted(cards, function, chosen)
            try:
                self._assign(cards, function, owner, wanted, vfio=vfio, rebind=rebind, wait=wait)
            except _JustTakenError:
                continue  # there is one free function less, or the one that was named is not free
            return self.find(function.address)

    def release(self, names: Iterable[str], *, owner: str | None = None) -> list[str]:
        """Take functions back from their owners, and put them as they were before.

        Without names, all of `owner`. Returns what could not be put back, in words.
        """
        assigned = read_records(self.host)["functions"]
        addresses = [self._address(name) for name in names]
        if not addresses and owner is not None:
            addresses = [name for name, record in assigned.items() if record["owner"] == owner]
        notes: list[str] = []
        for address in addresses:
            if address not in assigned:
                raise VicinalError(
                    f"{address} is assigned to nobody", "see `vicinal functions list`"
                )
            whose = owner or assigned[address]["owner"]
            notes += self._helper("release", function=address, owner=whose)["notes"]
        return notes

    def recall(self, name: str, *, owner: str) -> None:
        """Take a function's interface from whichever network has it, such as a container's.

        Nobody has the function until it is released. Raises VicinalError.
        """
        self._helper("recall", function=self.find(name).address, owner=owner)

    def change(self, name: str, *, owner: str, settings: Settings) -> None:
        """Set something else of a function that its owner has, and may be using.

        Its driver reads addresses and GUIDs once, when it is bound. Raises VicinalError.
        """
        cards = self.cards()
        function = self._found(cards, name)
        wanted = self._asked(cards, function, settings)
        self._check_clashes(cards, function, wanted)
        if wanted:
            self._helper("configure", function=function.address, owner=owner, settings=wanted)

    def withdraw(self, name: str, *, owner: str) -> list[str]:
        """Put a function back as it was, and keep it its owner's: assign() sets it up again.

        Its addresses are another's to have then. Returns what could not be put back, in words.
        """
        function = self.find(name)
        notes: list[str] = self._helper("reset", function=function.address, owner=owner)["notes"]
        card = find_card(self.cards(), function.physical)
        own = infiniband.own_guids(self.host, card.address, function.number)
        if own and card.kind == INFINIBAND:
            self._helper("configure", function=function.address, owner=owner, settings=own)
            self._helper("bind", function=function.address, owner=owner, binding="native")
        return notes

    def find(self, name: str) -> VirtualFunction:
        """A function by its address or its interface. Raises VicinalError where there is none."""
        return self._found(self.cards(), name)

    @staticmethod
    def _found(cards: list[PhysicalFunction], name: str) -> VirtualFunction:
        function = find_function(cards, name)
        if function is None:
            raise VicinalError(
                f"{name} is no virtual function of this host", "see `vicinal functions list`"
            )
        return function

    def _address(self, name: str) -> str:
        function = find_function(self.cards(), name)
        return function.address if function else name  # it may be gone, and only recorded

    def _choose(self, cards: list[PhysicalFunction], name: str, owner: str) -> VirtualFunction:
        function = find_function(cards, name)
        if function is None:
            card = find_card(cards, name)
            if not card.functions:
                raise VicinalError(
                    f"{name} has no virtual functions",
                    f"make some first: vicinal functions create {name} N",
                )
            function = next((each for each in card.functions if each.free), None)
            if function is None:
                reasons = "; ".join(
                    f"{each.address}: {each.use or 'assigned to ' + each.owner}"
                    for each in card.functions
                )
                raise VicinalError(
                    f"{name} has no free function ({reasons})", "release one, or make more"
                )
        if function.owner not in ("", owner):
            raise VicinalError(
                f"{function.address} is assigned to {function.owner}",
                f"take another one, or release it: vicinal functions release {function.address}",
            )
        if function.use:
            raise VicinalError(
                f"{function.address} is in use: {function.use}{_by(function)}",
                "take another one, or end what uses it",
            )
        return function

    def _assign(
        self,
        cards: list[PhysicalFunction],
        function: VirtualFunction,
        owner: str,
        wanted: dict[str, Any],
        *,
        vfio: bool,
        rebind: bool,
        wait: float,
    ) -> None:
        address = function.address
        card = find_card(cards, function.physical)
        if vfio:
            self._check_group(function)
            binding = VFIO
        else:
            # Addresses and GUIDs are read by a driver once, when it is bound.
            anew = rebind and ((wanted and function.driver) or function.driver == VFIO)
            binding = "native" if anew else ""
        with self._undone_if_it_fails(function, owner):
            self._give(function, owner, wanted, binding)
            if binding == "native":
                self._wait_device(card, function)
            if card.kind == INFINIBAND and not vfio and wait:
                infiniband.wait_active(self.host, card.address, address, function.number, wait)

    def _give(
        self, function: VirtualFunction, owner: str, wanted: dict[str, Any], binding: str
    ) -> None:
        """Have all of it done at once. Raises _JustTakenError if it is not free any more."""
        address, fresh = function.address, not function.owner
        asked = {"fresh": fresh, "settings": wanted, "binding": binding}
        try:
            new = self._helper("assign", function=address, owner=owner, **asked)["new"]
        except VicinalError:
            record = read_records(self.host)["functions"].get(address)
            if function.owner or record is None or record["owner"] == owner:
                raise
            new = False
        if fresh and not new:
            raise _JustTakenError(address, "take another one")

    @contextmanager
    def _undone_if_it_fails(self, function: VirtualFunction, owner: str) -> Iterator[None]:
        """Release a function if this fails or is interrupted, unless it was ours before."""
        try:
            yield
        except _JustTakenError:
            raise
        except BaseException as error:
            record = read_records(self.host)["functions"].get(function.address)
            if not function.owner and record is not None and record["owner"] == owner:
                try:
                    self._helper("release", function=function.address, owner=owner)
                except VicinalError as another:
                    if isinstance(error, VicinalError):
                        message = f"{error.message}; and undoing it failed ({another.message})"
                        raise VicinalError(message, another.remedy) from error
            raise

    def _wait_functions(self, card: str, count: int) -> PhysicalFunction:
        deadline = time.monotonic() + _APPEAR_SECONDS
        while len((now := find_card(self.cards(), card)).functions) != count:
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"{card} shows {len(now.functions)} functions of {count}"
                    f" {_APPEAR_SECONDS:.0f} s after they were made",
                    "see what `dmesg` says of the card",
                )
            time.sleep(_POLL_SECONDS)
        return now

    def _wanted(
        self, cards: list[PhysicalFunction], function: VirtualFunction, settings: Settings
    ) -> dict[str, Any]:
        """What is asked for and what it lacks, none of which anything else of this host has."""
        wanted = self._asked(cards, function, settings)
        card = find_card(cards, function.physical)
        if card.kind == INFINIBAND:
            wanted = infiniband.with_defaults(self.host, card.address, function.number, wanted)
        self._check_clashes(cards, function, wanted)
        return wanted

    def _asked(
        self, cards: list[PhysicalFunction], function: VirtualFunction, settings: Settings
    ) -> dict[str, Any]:
        """The helper's settings of what is asked for."""
        card = find_card(cards, function.physical)
        asked = settings.for_card(card)
        if settings.pkey is not None:
            port = settings.port or 1
            index = infiniband.pkey_index(self.host, card.address, port, settings.pkey)
            asked["pkey_index"] = index
        return asked

    def _check_clashes(
        self, cards: list[PhysicalFunction], function: VirtualFunction, wanted: dict[str, Any]
    ) -> None:
        """Refuse an address that something else of this host has."""
        if "mac" in wanted:
            for place in (self.host.sysfs / "class/net").glob("*/address"):
                name = place.parent.name
                if name not in function.interfaces and self.host.read(place) == wanted["mac"]:
                    raise VicinalError(
                        f"{name} of this host has the hardware address {wanted['mac']} already",
                        "choose another one",
                    )
        guids = {wanted[name] for name in ("node_guid", "port_guid") if name in wanted}
        others: list[PhysicalFunction | VirtualFunction] = [*cards]
        others += [each for each in all_functions(cards) if each.address != function.address]
        for other in others:
            for port in other.ports:
                if clash := guids & {port.guid, port.node_guid}:
                    raise VicinalError(
                        f"{port.device} ({other.address}) has the GUID {clash.pop()} already",
                        "choose another one",
                    )

    def _check_group(self, function: VirtualFunction) -> None:
        """All of an IOMMU group goes to one guest: nothing else may be at work in it."""
        for other in function.group_others:
            device = self.host.device(other)
            driver = self.host.link(device / "driver")
            if driver not in ("", VFIO, "pcieport"):
                raise VicinalError(
                    f"{function.address} is in one IOMMU group with {other}, which {driver} has",
                    "put the card into a slot whose port separates its functions (PCIe ACS)",
                )

    def _wait_device(self, card: PhysicalFunction, function: VirtualFunction) -> None:
        """Wait until a driver has made its interface or RDMA device, if it does so at all."""
        kind = "infiniband" if card.kind == INFINIBAND else "net"
        deadline = time.monotonic() + _APPEAR_SECONDS
        before = bool(function.ports if card.kind == INFINIBAND else function.interfaces)
        while before and not self.host.names(function.address, kind):
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"{function.address} did not come back within {_APPEAR_SECONDS:.0f} s after"
                    f" {function.driver} was bound to it anew",
                    "see what `dmesg` says of it",
                )
            time.sleep(_POLL_SECONDS)


def vfio_node(function: VirtualFunction, host: Host) -> Path:
    """The file by which a program such as QEMU opens a function that vfio-pci has."""
    return host.groups / function.group


def _by(function: VirtualFunction) -> str:
    return f", by {', '.join(function.programs)}" if function.programs else ""
