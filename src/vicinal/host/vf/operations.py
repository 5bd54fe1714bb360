"""Creating virtual functions, assigning them to an owner such as a cluster, and releasing them.

    vfs = Vfs()
    vfs.create("eth1", 2, owner="job-4711")
    given = vfs.assign("eth1", owner="job-4711", settings=Settings(mac="52:54:00:12:34:56"))
    vfs.release([given.address])
    vfs.remove("eth1")

An assignment that fails or is interrupted is undone. After a kill, the assignment is in the
records, and `release` undoes it.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.host.vf import infiniband
from vicinal.host.vf.helper import Helper, ask_helper, check_reachable
from vicinal.host.vf.privileged.system import VFIO, Host
from vicinal.host.vf.settings import Settings
from vicinal.host.vf.sysfs import (
    INFINIBAND,
    PhysicalFunction,
    VirtualFunction,
    all_vfs,
    find_card,
    find_vf,
    physical_functions,
    read_records,
)

_APPEAR_SECONDS = 30.0
_POLL_SECONDS = 0.05
_ADDRESSES = ("mac", "node_guid", "port_guid")


Chosen = Settings | Callable[[VirtualFunction], Settings] | None
"""Settings of a VF, or a function that computes them for the chosen virtual function."""


class Vfs:
    """The virtual functions of a host. Methods that change VFs raise VicinalError."""

    def __init__(self, host: Host | None = None, helper: Helper = ask_helper) -> None:
        self.host = host or Host()
        self._helper = helper

    def check_helper(self) -> None:
        """Raise VicinalError if this user's commands cannot reach the helper."""
        if self._helper is ask_helper:
            check_reachable()

    def cards(self) -> list[PhysicalFunction]:
        """Return the cards and their VFs in their current state."""
        return physical_functions(self.host)

    def create(self, card: str, count: int, *, owner: str) -> PhysicalFunction:
        """Create `count` VFs on a card, and wait until they exist.

        If the card already has that many VFs, nothing changes. Their creator does not
        matter.
        """
        found = find_card(self.cards(), card)
        if count < 1:
            raise VicinalError(f"{count} VFs cannot be created", "use a number from 1")
        try:
            self._helper("count", physical=found.address, count=count, owner=owner)
            return self._wait_vfs(found.address, count)
        except BaseException:
            # Probably interrupted. VFs that existed before are not created again.
            now = find_card(self.cards(), found.address)
            if not found.vfs and now.vfs and now.owner == owner:
                self._helper("count", physical=found.address, count=0, owner=owner)
            raise

    def remove(self, card: str, *, owner: str | None = None) -> int:
        """Remove all VFs of a card; none of them may be assigned or in use.

        Returns their former number. Without `owner`, the VFs of any owner are removed.
        """
        found = find_card(self.cards(), card)
        whose = owner or found.owner or "vicinal"
        answer = self._helper("count", physical=found.address, count=0, owner=whose)
        return int(answer["before"])

    def clear(self, owner: str) -> list[str]:
        """Release all VFs of an owner, and remove all VFs that were created for the
        owner.

        VFs of other owners on the owner's card stay, and cause an error. Returns messages
        about settings that could not be restored. Does nothing if the owner has nothing.
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
        settings: Chosen = None,
        vfio: bool = False,
        rebind: bool = True,
        wait: float = 30.0,
    ) -> VirtualFunction:
        """Assign a VF to an owner: configure it, and bind it to vfio-pci or to its own
        driver.

        `name` is a VF, or a card whose first free VF is used; `settings` may depend on
        the chosen VF. The other arguments are those of assign_all().
        """
        asked = [(name, settings)]
        return self.assign_all(asked, owner=owner, vfio=vfio, rebind=rebind, wait=wait)[0]

    def assign_all(
        self,
        asked: Sequence[tuple[str, Chosen]],
        *,
        owner: str,
        vfio: bool = False,
        rebind: bool = True,
        wait: float = 30.0,
    ) -> list[VirtualFunction]:
        """Assign several VFs, each with its name and settings, to an owner; all of them or
        none.

        Without `rebind` each VF keeps its driver: for settings that no driver reads, such as
        rates. For InfiniBand VFs that stay on this host, assign_all() waits until their ports
        are ACTIVE, at most `wait` seconds in all; 0 means no wait. Whether a port of a VF for
        vfio-pci comes up is visible only in the guest.
        """
        while asked:
            cards = self.cards()
            chosen: dict[str, tuple[VirtualFunction, dict[str, Any]]] = {}
            for name, settings in asked:
                vf = self._choose(cards, name, owner, chosen)
                which = settings(vf) if callable(settings) else settings or Settings()
                others = [wanted for _, wanted in chosen.values()]
                chosen[vf.address] = vf, self._wanted(cards, vf, which, others)
            each = list(chosen.values())
            if self._assign(cards, each, owner, vfio=vfio, rebind=rebind, wait=wait):
                cards = self.cards()
                return [self._found(cards, address) for address in chosen]
            # Another command took a VF in the meantime: choose again, or report that a named
            # VF is not free.
        return []

    def release(self, names: Iterable[str], *, owner: str | None = None) -> list[str]:
        """Release VFs from their owners, and restore their former settings.

        Without names, all VFs of `owner` are released. Returns messages about settings that
        could not be restored. Raises VicinalError with all causes after an attempt for each
        VF.
        """
        assigned = read_records(self.host)["vfs"]
        addresses = [self._address(name) for name in names]
        if not addresses and owner is not None:
            addresses = [name for name, record in assigned.items() if record["owner"] == owner]
        of: dict[str, list[str]] = {}
        for address in addresses:
            if address not in assigned:
                raise VicinalError(f"{address} is not assigned", "see `vicinal vf list`")
            of.setdefault(owner or assigned[address]["owner"], []).append(address)
        notes: list[str] = []
        left: list[list[str]] = []
        for whose, vfs in of.items():
            answer = self._helper("release", vfs=vfs, owner=whose)
            notes += answer["notes"]
            left += answer["left"]
        if left:
            raise VicinalError("; ".join([*(what for what, _ in left), *notes]), left[0][1])
        return notes

    def grant(self, name: str, *, owner: str, user: int) -> None:
        """Bind a VF to vfio-pci, and let a user open it; its IOMMU group must hold nothing
        else.

        Raises VicinalError.
        """
        vf = self.find(name)
        for other in vf.group_others:
            if self.host.link(self.host.device(other) / "driver") != "pcieport":
                raise VicinalError(
                    f"{vf.address} is in one IOMMU group with {other}, which goes with it",
                    "put the card into a slot whose port separates its VFs (PCIe ACS)",
                )
        self._helper("grant", vf=vf.address, owner=owner, user=user)

    def recall(self, name: str, *, owner: str) -> None:
        """Remove a VF's interface from its network namespace, such as a container's.

        The VF has no driver until it is released. Raises VicinalError.
        """
        self._helper("recall", vf=self.find(name).address, owner=owner)

    def change(self, name: str, *, owner: str, settings: Settings) -> None:
        """Change settings of a VF that its owner has, and may be using.

        The VF's driver reads addresses and GUIDs only when it is bound. Raises VicinalError.
        """
        cards = self.cards()
        vf = self._found(cards, name)
        wanted = self._asked(cards, vf, settings)
        self._check_clashes(cards, vf, wanted)
        if wanted:
            self._helper("configure", vf=vf.address, owner=owner, settings=wanted)

    def withdraw(self, name: str, *, owner: str) -> list[str]:
        """Restore a VF's former settings, but keep its owner; assign() configures it again.

        The VF's addresses are free for others afterwards. Returns messages about settings
        that could not be restored.
        """
        vf = self.find(name)
        notes: list[str] = self._helper("reset", vf=vf.address, owner=owner)["notes"]
        card = find_card(self.cards(), vf.physical)
        own = infiniband.own_guids(self.host, card.address, vf.number)
        if own and card.kind == INFINIBAND:
            self._helper("configure", vf=vf.address, owner=owner, settings=own)
            self._helper("bind", vf=vf.address, owner=owner, binding="native")
        return notes

    def find(self, name: str) -> VirtualFunction:
        """Return a VF by its address or interface. Raises VicinalError if there is none."""
        return self._found(self.cards(), name)

    @staticmethod
    def _found(cards: list[PhysicalFunction], name: str) -> VirtualFunction:
        vf = find_vf(cards, name)
        if vf is None:
            raise VicinalError(
                f"{name} is no virtual function of this host", "see `vicinal vf list`"
            )
        return vf

    def _address(self, name: str) -> str:
        vf = find_vf(self.cards(), name)
        return vf.address if vf else name  # the VF may exist only in the records

    def _choose(
        self, cards: list[PhysicalFunction], name: str, owner: str, but: Container[str]
    ) -> VirtualFunction:
        """The VF of this name, or a free VF of the card of this name; never one of
        `but`."""
        vf = find_vf(cards, name)
        if vf is None:
            card = find_card(cards, name)
            if not card.vfs:
                raise VicinalError(
                    f"{name} has no virtual functions",
                    f"create VFs first: vicinal vf create {name} N",
                )
            free = (each for each in card.vfs if each.free and each.address not in but)
            vf = next(free, None)
            if vf is None:
                reasons = "; ".join(
                    f"{each.address}: {each.use or f'assigned to {each.owner or owner}'}"
                    for each in card.vfs
                )
                raise VicinalError(
                    f"{name} has no free VF ({reasons})", "release a VF, or create more"
                )
        if vf.address in but:
            raise VicinalError(f"{name} was named twice", "name each VF once")
        if vf.owner not in ("", owner):
            raise VicinalError(
                f"{vf.address} is assigned to {vf.owner}",
                f"take another one, or release it: vicinal vf release {vf.address}",
            )
        if vf.use:
            raise VicinalError(
                f"{vf.address} is in use: {vf.use}{_by(vf)}",
                "take another one, or end what uses it",
            )
        return vf

    def _assign(
        self,
        cards: list[PhysicalFunction],
        chosen: Sequence[tuple[VirtualFunction, dict[str, Any]]],
        owner: str,
        *,
        vfio: bool,
        rebind: bool,
        wait: float,
    ) -> bool:
        """Assign all VFs in one request; False, with no VF assigned, if one is no
        longer free."""
        asked = []
        for vf, wanted in chosen:
            if vfio:
                self._check_group(vf)
                binding = VFIO
            else:
                # A driver reads addresses and GUIDs only when it is bound.
                anew = rebind and ((wanted and vf.driver) or vf.driver == VFIO)
                binding = "native" if anew else ""
            fresh = not vf.owner
            each = {"fresh": fresh, "settings": wanted, "binding": binding}
            asked.append({"vf": vf.address, **each})
        with self._undone_if_it_fails([vf for vf, _ in chosen], owner):
            if self._helper("assign", vfs=asked, owner=owner)["taken"]:
                return False
            deadline = time.monotonic() + wait
            for (vf, _), request in zip(chosen, asked, strict=True):
                card = find_card(cards, vf.physical)
                if request["binding"] == "native":
                    self._wait_device(card, vf)
                if card.kind == INFINIBAND and not vfio and wait:
                    infiniband.wait_active(
                        self.host, card.address, vf.address, vf.number, wait, deadline
                    )
        return True

    @contextmanager
    def _undone_if_it_fails(self, chosen: list[VirtualFunction], owner: str) -> Iterator[None]:
        """If the block fails or is interrupted, release the VFs that it newly assigned."""
        try:
            yield
        except BaseException as error:
            records = read_records(self.host)["vfs"]
            whose = {address: record["owner"] for address, record in records.items()}
            free = [each.address for each in chosen if not each.owner]
            if new := [address for address in reversed(free) if whose.get(address) == owner]:
                try:
                    self.release(new, owner=owner)
                except VicinalError as another:
                    if isinstance(error, VicinalError):
                        message = f"{error.message}; and undoing it failed ({another.message})"
                        raise VicinalError(message, another.remedy) from error
            raise

    def _wait_vfs(self, card: str, count: int) -> PhysicalFunction:
        deadline = time.monotonic() + _APPEAR_SECONDS
        while len((now := find_card(self.cards(), card)).vfs) != count:
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"{card} shows {len(now.vfs)} VFs of {count}"
                    f" {_APPEAR_SECONDS:.0f} s after they were made",
                    "read the card's messages in `dmesg`",
                )
            time.sleep(_POLL_SECONDS)
        return now

    def _wanted(
        self,
        cards: list[PhysicalFunction],
        vf: VirtualFunction,
        settings: Settings,
        others: Iterable[dict[str, Any]],
    ) -> dict[str, Any]:
        """The requested and the missing settings. Raises VicinalError if an address is already in
        use."""
        wanted = self._asked(cards, vf, settings)
        card = find_card(cards, vf.physical)
        if card.kind == INFINIBAND:
            wanted = infiniband.with_defaults(self.host, card.address, vf.number, wanted)
        self._check_clashes(cards, vf, wanted)
        own = {wanted[name] for name in _ADDRESSES if name in wanted}
        for other in others:
            if clash := own & {other[name] for name in _ADDRESSES if name in other}:
                raise VicinalError(
                    f"{clash.pop()} is requested twice, for {vf.address} and another",
                    "choose another address",
                )
        return wanted

    def _asked(
        self, cards: list[PhysicalFunction], vf: VirtualFunction, settings: Settings
    ) -> dict[str, Any]:
        """The requested settings in the helper's form."""
        card = find_card(cards, vf.physical)
        asked = settings.for_card(card)
        if settings.pkey is not None:
            port = settings.port or 1
            index = infiniband.pkey_index(self.host, card.address, port, settings.pkey)
            asked["pkey_index"] = index
        return asked

    def _check_clashes(
        self, cards: list[PhysicalFunction], vf: VirtualFunction, wanted: dict[str, Any]
    ) -> None:
        """Raise VicinalError if another device of this host has the requested address or GUID."""
        if "mac" in wanted:
            for file in (self.host.sysfs / "class/net").glob("*/address"):
                name = file.parent.name
                if name not in vf.interfaces and self.host.read(file) == wanted["mac"]:
                    raise VicinalError(
                        f"{name} of this host has the hardware address {wanted['mac']} already",
                        "choose another one",
                    )
        guids = {wanted[name] for name in ("node_guid", "port_guid") if name in wanted}
        others: list[PhysicalFunction | VirtualFunction] = [*cards]
        others += [each for each in all_vfs(cards) if each.address != vf.address]
        for other in others:
            for port in other.ports:
                if clash := guids & {port.guid, port.node_guid}:
                    raise VicinalError(
                        f"{port.device} ({other.address}) has the GUID {clash.pop()} already",
                        "choose another one",
                    )

    def _check_group(self, vf: VirtualFunction) -> None:
        """Raise VicinalError if another device of the IOMMU group, which goes to one guest, has a
        driver."""
        for other in vf.group_others:
            device = self.host.device(other)
            driver = self.host.link(device / "driver")
            if driver not in ("", VFIO, "pcieport"):
                raise VicinalError(
                    f"{vf.address} is in one IOMMU group with {other}, which {driver} has",
                    "put the card into a slot whose port separates its VFs (PCIe ACS)",
                )

    def _wait_device(self, card: PhysicalFunction, vf: VirtualFunction) -> None:
        """Wait until the driver has created its interface or RDMA device, if the VF had one
        before."""
        kind = "infiniband" if card.kind == INFINIBAND else "net"
        deadline = time.monotonic() + _APPEAR_SECONDS
        before = bool(vf.ports if card.kind == INFINIBAND else vf.interfaces)
        while before and not self.host.names(vf.address, kind):
            if time.monotonic() > deadline:
                raise VicinalError(
                    f"{vf.address} did not come back within {_APPEAR_SECONDS:.0f} s after"
                    f" {vf.driver} was bound to it anew",
                    "read the VF's messages in `dmesg`",
                )
            time.sleep(_POLL_SECONDS)


def vfio_node(vf: VirtualFunction, host: Host) -> Path:
    """Return the file by which a program such as QEMU opens a VF that is bound to
    vfio-pci."""
    return host.groups / vf.group


def _by(vf: VirtualFunction) -> str:
    return f", by {', '.join(vf.programs)}" if vf.programs else ""
