"""Starting guests that are joined with each other: from a snapshot, which is made if there is none.

    guests = start_guests([GuestMake("node0"), GuestMake("node1")], directory, region)

Their networks are wires between each two of them, pairs of sockets that nobody else has, or one
network that is there. All of it ends with the thread that starts them; files are left in
`directory`.
"""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import OpenEnd
from vicinal.cluster.vm.guest.identity import (
    Card,
    Identity,
    Keys,
    KeyTexts,
    card_address,
    generate_keys,
    write_archives,
    write_keys,
)
from vicinal.cluster.vm.image.building import find_image
from vicinal.cluster.vm.image.layout import guest_address
from vicinal.cluster.vm.qemu.accelerator_probe import choose_accelerator
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB
from vicinal.cluster.vm.snapshot import store
from vicinal.cluster.vm.snapshot.hardware import (
    MOST_DEVICES,
    Functions,
    SnapshotHardware,
    with_functions,
)
from vicinal.cluster.vm.snapshot.waiting import Plugged, WaitingGuest

_TEMPLATE = "template"
_KERNEL_BYTES = 256 << 20
"""Of a guest's memory, about: the kernel, and what user space there is."""


@dataclass(frozen=True)
class GuestMake:
    """A guest that is to be started."""

    name: str
    memory_mib: int = MEMORY_MIB
    cpus: int = 1
    commands: str = ""
    """What it runs before anybody gets in, as guest_init.sh reads it."""
    joined: bool = True
    """Whether it has a network with the others."""
    functions: Functions = ()
    """Those that it has for itself."""


@dataclass(frozen=True)
class CommonNetwork:
    """A network that is there, and that guests of other hosts are in too."""

    names: Sequence[str]
    """Of all guests on all hosts, in the order of their addresses."""
    taps: Sequence[int]
    """An open tap for each guest that is started here."""
    mtu: int
    """Its largest packet."""
    keys: KeyTexts | None = None
    """Those of all guests on all hosts; None: guests of this host have keys of their own."""


Say = Callable[[str], None]


def start_guests(
    guests: Sequence[GuestMake],
    directory: Path,
    region: Path | None,
    network: CommonNetwork | None = None,
    *,
    say: Say = lambda _: None,
    snapshot: bool = True,
) -> list[WaitingGuest]:
    """Start them, and wait until commands can be run in each.

    Without `snapshot` they boot; `say` is told what takes its time. Raises VicinalError; then none
    of them runs.
    """
    make_of = _hardware(say)
    joining = joining_of(guests, network)
    if network is None or network.keys is None:
        generate_keys(directory)
    else:
        write_keys(directory, network.keys)
    commands = {guest.name: guest.commands for guest in guests if guest.commands}
    functions = {guest.name: guest.functions for guest in guests}
    identities = joining.identities()
    identities = [with_functions(each, functions.get(each.name, ())) for each in identities]
    keys = write_archives(directory, identities, commands)
    started: list[WaitingGuest] = []
    try:
        with ExitStack() as ends:
            wires = joining.wires(ends)
            for guest, ends_of in zip(guests, wires, strict=True):
                hardware = make_of(guest)
                waiting = WaitingGuest(guest.name, directory, keys, hardware)
                started.append(waiting)
                _begin(waiting, hardware, ends_of, say if snapshot else None)
        for waiting in started:
            waiting.wait_booted()
            own = functions[waiting.name]
            waiting.tell(Plugged(region, joining.macs(waiting.name), joining.mtu, own))
        for waiting in started:
            waiting.wait_ready()
    except BaseException:
        for waiting in started:
            waiting.stop()
        raise
    return started


def joining_of(guests: Sequence[GuestMake], network: CommonNetwork | None) -> "Wired | Common":
    """How guests are joined, by that network or without one."""
    return Wired(guests) if network is None else Common(guests, network)


class Wired:
    """Guests with a wire between each two of them; one device of each is the region's."""

    mtu = None

    def __init__(self, guests: Sequence[GuestMake]) -> None:
        if len(guests) > MOST_DEVICES:
            raise VicinalError(
                f"{len(guests)} guests cannot be joined by wires, {MOST_DEVICES} can",
                "make them fewer and larger",
            )
        self._guests = guests
        self._numbers = {guest.name: number for number, guest in enumerate(guests)}

    def identities(self) -> list[Identity]:
        """Who they are."""
        return [
            Identity(
                number,
                guest.name,
                guest_address(number),
                tuple(
                    Card(card_address(number, peer), guest_address(peer))
                    for peer in self._peers(number)
                ),
            )
            for number, guest in enumerate(self._guests)
        ]

    def macs(self, name: str) -> list[str]:
        """Hardware addresses of a guest's cards."""
        number = self._numbers[name]
        return [card_address(number, peer) for peer in self._peers(number)]

    def wires(self, stack: ExitStack) -> list[list[OpenEnd]]:
        """Each guest's ends of them; closed here when all have been started."""
        ends = {}
        for one, other in combinations(range(len(self._guests)), 2):
            if other in self._peers(one):
                pair = socket.socketpair()
                ends[one, other], ends[other, one] = (stack.enter_context(end) for end in pair)
        return [
            [OpenEnd(ends[number, peer].fileno()) for peer in self._peers(number)]
            for number in range(len(self._guests))
        ]

    def _peers(self, own: int) -> list[int]:
        """The others that it is joined with."""
        joined = [number for number, guest in enumerate(self._guests) if guest.joined]
        return [number for number in joined if number != own] if own in joined else []


class Common:
    """Guests with a card in a network that is there."""

    def __init__(self, guests: Sequence[GuestMake], network: CommonNetwork) -> None:
        self._joined = [guest.joined for guest in guests]
        self._network = network
        self._numbers = {name: number for number, name in enumerate(network.names)}
        self._alone = {guest.name for guest in guests if not guest.joined}
        self.mtu = network.mtu

    def identities(self) -> list[Identity]:
        """Who all are in that network."""
        return [
            Identity(number, name, guest_address(number), tuple(map(Card, self.macs(name))))
            for name, number in self._numbers.items()
        ]

    def macs(self, name: str) -> list[str]:
        """Hardware address of a guest's card."""
        return [] if name in self._alone else [card_address(self._numbers[name])]

    def wires(self, stack: ExitStack) -> list[list[OpenEnd]]:
        """Each guest's tap; closed here when all have been started."""
        for tap in self._network.taps:
            stack.callback(os.close, tap)
        taps = zip(self._network.taps, self._joined, strict=True)
        return [[OpenEnd(tap, is_tap=True)] if joined else [] for tap, joined in taps]


def _begin(
    waiting: WaitingGuest, hardware: SnapshotHardware, wires: Sequence[OpenEnd], say: Say | None
) -> None:
    """Start it from a snapshot, or let it boot where there can be none, or is to be none."""
    if say is None:
        waiting.boot(wires)
        return
    key = hardware.key
    with store.opened(key) as found:
        if found is not None:
            waiting.restore(found, wires)
            return
    say("saving a guest that has booted, for this one and those after")
    # Its files, each of which may be in memory twice, and what Linux needs to count its pages.
    room = 2 * hardware.files.stat().st_size + _KERNEL_BYTES + (hardware.memory_mib << 20) // 32
    made = store.make(key, hardware.memory_mib << 20, room, lambda *files: _save(hardware, *files))
    with store.opened(key) as found:
        if made and found is not None:
            waiting.restore(found, wires)
        else:
            say(f"there is no room for a saved guest in {store.snapshots_directory()}: it boots")
            waiting.boot(wires)


def _save(hardware: SnapshotHardware, memory: int, state: int) -> None:
    """Boot a guest that nobody tells who it is, and save it to two open files."""
    with TemporaryDirectory(prefix="vicinal-") as temporary:
        template = WaitingGuest(_TEMPLATE, Path(temporary), Keys(Path(temporary)), hardware)
        try:
            template.boot(memory=memory)
            template.wait_booted()
            template.save(state)
        finally:
            template.stop()


def _hardware(say: Say) -> Callable[[GuestMake], SnapshotHardware]:
    qemu, image = find_qemu(), find_image(say)
    accelerator = choose_accelerator(qemu, image, say).accelerator
    return lambda guest: SnapshotHardware(
        qemu, accelerator, image.kernel, image.files, guest.memory_mib, guest.cpus
    )
