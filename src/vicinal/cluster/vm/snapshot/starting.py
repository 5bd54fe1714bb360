"""Starting guests of one network from a snapshot, which is made if none exists.

    guests = start_guests([GuestMake("node0"), GuestMake("node1")], directory, region)

A wire joins each pair of guests, which is a socket pair that no other process has, or an existing
network joins all guests. The guests end with the thread that starts them. Their files stay in
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
    PassedVfs,
    SnapshotHardware,
    with_vfs,
)
from vicinal.cluster.vm.snapshot.waiting import Plugged, WaitingGuest

_TEMPLATE = "template"
_KERNEL_BYTES = 256 << 20
"""Approximate memory of a guest for its kernel and user space."""


@dataclass(frozen=True)
class GuestMake:
    """A guest to start."""

    name: str
    memory_mib: int = MEMORY_MIB
    cpus: int = 1
    commands: str = ""
    """Commands that it runs before it accepts connections, in the form that guest_init.sh reads."""
    joined: bool = True
    """Whether it has a network with other guests."""
    vfs: PassedVfs = ()
    """SR-IOV VFs for this guest."""


@dataclass(frozen=True)
class CommonNetwork:
    """An existing network that guests of other hosts use too."""

    names: Sequence[str]
    """Names of all guests on all hosts, in the order of their addresses."""
    taps: Sequence[int]
    """An open tap for each guest that starts on this host."""
    mtu: int
    """Maximum packet size."""
    keys: KeyTexts | None = None
    """Keys of all guests on all hosts; None: guests of this host have keys of their own."""


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
    """Start guests, and wait until commands can run in each.

    Without `snapshot` the guests boot. `say` receives steps that take time. Raises VicinalError if
    a guest does not start, and then ends all guests.
    """
    make_of = _hardware(say)
    joining = joining_of(guests, network)
    if network is None or network.keys is None:
        generate_keys(directory)
    else:
        write_keys(directory, network.keys)
    commands = {guest.name: guest.commands for guest in guests if guest.commands}
    vfs = {guest.name: guest.vfs for guest in guests}
    identities = joining.identities()
    identities = [with_vfs(each, vfs.get(each.name, ())) for each in identities]
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
            own = vfs[waiting.name]
            waiting.tell(Plugged(region, joining.macs(waiting.name), joining.mtu, own))
        for waiting in started:
            waiting.wait_ready()
    except BaseException:
        for waiting in started:
            waiting.stop()
        raise
    return started


def joining_of(guests: Sequence[GuestMake], network: CommonNetwork | None) -> "Wired | Common":
    """How guests are joined: by an existing network, or by wires."""
    return Wired(guests) if network is None else Common(guests, network)


class Wired:
    """Guests with a wire between each pair; one further device of each guest is the region."""

    mtu = None

    def __init__(self, guests: Sequence[GuestMake]) -> None:
        if len(guests) > MOST_DEVICES:
            raise VicinalError(
                f"{len(guests)} guests are too many: wires join at most {MOST_DEVICES}",
                "use fewer and larger guests",
            )
        self._guests = guests
        self._numbers = {guest.name: number for number, guest in enumerate(guests)}

    def identities(self) -> list[Identity]:
        """The identities of the guests."""
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
        """The hardware addresses of a guest's cards."""
        number = self._numbers[name]
        return [card_address(number, peer) for peer in self._peers(number)]

    def wires(self, stack: ExitStack) -> list[list[OpenEnd]]:
        """Each guest's ends of its wires; `stack` closes them here once all guests have started."""
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
        """Numbers of the other guests that are joined to this one."""
        joined = [number for number, guest in enumerate(self._guests) if guest.joined]
        return [number for number in joined if number != own] if own in joined else []


class Common:
    """Guests with a card in an existing network."""

    def __init__(self, guests: Sequence[GuestMake], network: CommonNetwork) -> None:
        self._joined = [guest.joined for guest in guests]
        self._network = network
        self._numbers = {name: number for number, name in enumerate(network.names)}
        self._alone = {guest.name for guest in guests if not guest.joined}
        self.mtu = network.mtu

    def identities(self) -> list[Identity]:
        """The identities of all guests in the network, on all hosts."""
        return [
            Identity(number, name, guest_address(number), tuple(map(Card, self.macs(name))))
            for name, number in self._numbers.items()
        ]

    def macs(self, name: str) -> list[str]:
        """The hardware address of a guest's card; empty for a guest without a network."""
        return [] if name in self._alone else [card_address(self._numbers[name])]

    def wires(self, stack: ExitStack) -> list[list[OpenEnd]]:
        """Each guest's tap; `stack` closes it here once all guests have started."""
        for tap in self._network.taps:
            stack.callback(os.close, tap)
        taps = zip(self._network.taps, self._joined, strict=True)
        return [[OpenEnd(tap, is_tap=True)] if joined else [] for tap, joined in taps]


def _begin(
    waiting: WaitingGuest, hardware: SnapshotHardware, wires: Sequence[OpenEnd], say: Say | None
) -> None:
    """Start a guest from a snapshot, or boot it if `say` is None or there is no room for one."""
    if say is None:
        waiting.boot(wires)
        return
    key = hardware.key
    with store.opened(key) as found:
        if found is not None:
            waiting.restore(found, wires)
            return
    say("saving a booted guest, from which this guest and later ones start")
    # The guest's files, each of which may be in memory twice, and Linux's page structures.
    room = 2 * hardware.files.stat().st_size + _KERNEL_BYTES + (hardware.memory_mib << 20) // 32
    made = store.make(key, hardware.memory_mib << 20, room, lambda *files: _save(hardware, *files))
    with store.opened(key) as found:
        if made and found is not None:
            waiting.restore(found, wires)
        else:
            say(f"no room for a saved guest in {store.snapshots_directory()}: this guest boots")
            waiting.boot(wires)


def _save(hardware: SnapshotHardware, memory: int, state: int) -> None:
    """Boot a guest without an identity, and save it to two open files."""
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
