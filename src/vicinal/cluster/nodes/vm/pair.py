"""Two guests on this host that share a region and a network, or only a network.

    with GuestPair() as pair:
        print(pair.guests[0].run(["hostname"]).stdout)

The region is the memory of an ivshmem or nvdimm device in each guest. The network is a wire between
their virtio cards. If the guests play two hosts, another wire joins their SR-IOV cards, and each
guest has a region of its own. Nothing is reachable from outside, and root is not needed. Guests and
files end with the process that started them, even if it is killed.
"""

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.local_guests import LocalGuests
from vicinal.cluster.vm.devices import (
    DoorbellRegion,
    FileRegion,
    NvdimmRegion,
    OpenEnd,
    OpenWire,
    SriovCard,
)
from vicinal.cluster.vm.guest.identity import Card, Identity, card_address, make_keys
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.building import GuestImage, build_image
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.layout import IDENTITY_FILE, guest_address, vf_address
from vicinal.cluster.vm.qemu.accelerator_probe import Choice, choose_accelerator
from vicinal.cluster.vm.qemu.choice import Qemu, find_qemu, qemu_for
from vicinal.cluster.vm.qemu.command_line import MEMORY_MIB, QemuGuest
from vicinal.cluster.vm.qemu.doorbell.running import RunningServer
from vicinal.cluster.vm.qemu.guest import Guest
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.mpi.job_region import check_heap, usable_region
from vicinal.region import DEFAULT_MEMBERS, DEFAULT_SECTION_BYTES, RegionState
from vicinal.region import create as create_region
from vicinal.region import inspect as inspect_region

_T = TypeVar("_T")

_NAMES = ("guest0", "guest1")
_SHARED = Path("/dev/shm")
_CHECK_SECONDS = 30.0
_SWEEP_SECONDS = 10.0

_FIND_REGION = """
for device in /sys/bus/pci/devices/*; do
    [ "$(cat $device/vendor $device/device)" = "0x1af4
0x1110" ] || continue
    [ -r $device/resource2 ] && [ -w $device/resource2 ] && exec echo "$device"
    echo "it may not use $device/resource2: $(ls -l $device/resource2)" >&2
    exit 1
done
echo "it sees no PCI device 1af4:1110" >&2
exit 1
"""

_FIND_MODULE = """
for device in /dev/dax*; do
    [ -c $device ] || continue
    [ -r $device ] && [ -w $device ] && exec echo $device
    echo "it may not use $device: $(ls -l $device)" >&2
    exit 1
done
echo "it sees no /dev/dax: $(ls /sys/bus/nd/devices | tr '\\n' ' ')" >&2
exit 1
"""

_FIND = {
    RegionDevice.IVSHMEM: _FIND_REGION,
    RegionDevice.DOORBELL: _FIND_REGION,
    RegionDevice.NVDIMM: _FIND_MODULE,
}


class GuestPair(LocalGuests[Guest]):
    """Two guests, guest0 and guest1, which run while the pair is open. Implements JobGuests.

    `members` and `section_bytes` describe the region. `network` says how the guests reach each
    other, and whether they share a region; `region_device` is the region's device. `say` receives
    each step. Raises VicinalError if guests cannot be started or do not boot.
    """

    alone: frozenset[str] = frozenset()
    """No guest: a wire joins them."""

    def __init__(
        self,
        *,
        members: int = DEFAULT_MEMBERS,
        section_bytes: int = DEFAULT_SECTION_BYTES,
        network: GuestNetwork = GuestNetwork.VIRTIO,
        region_device: RegionDevice = RegionDevice.IVSHMEM,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.network = network
        self.region_device = region_device
        self._doorbell: RunningServer | None = None
        self._members = members
        self._section_bytes = section_bytes
        self._say = say
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._qemu: Qemu | None = None
        self._choice: Choice | None = None
        self._image: GuestImage | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def region(self) -> Path:
        """The region's file on this host; the first guest's if each guest has a region."""
        return self._opened(next(iter(self.regions), None))

    @property
    def qemu(self) -> Qemu:
        """The QEMU of the guests."""
        return self._opened(self._qemu)

    @property
    def choice(self) -> Choice:
        """The accelerator of the guests, and the reason for it."""
        return self._opened(self._choice)

    @property
    def image(self) -> GuestImage:
        """The image that the guests booted."""
        return self._opened(self._image)

    def open(self) -> None:
        """Start the guests. Afterwards they run and reach each other."""
        if self.region_device is RegionDevice.DOORBELL and self.network is GuestNetwork.VERBS:
            raise VicinalError(
                "guests that play two hosts share no region, and so cannot have a doorbell",
                f"use the network {GuestNetwork.VIRTIO}, or another device for the region",
            )
        try:
            find_qemu()
            self._qemu = qemu_for(self.network, self._say)
            self._image = build_image(self._say, self.network)
            self._choice = choose_accelerator(self._qemu, self._image, self._say)
            self._start(self._qemu, self._image, self._choice)
            self._check_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the guests and remove their files."""
        for guest in self.guests:
            guest.stop()
        if self._doorbell is not None:
            self._doorbell.stop()
        self.regions = []
        self._choice = self._image = self._qemu = None
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            assert sweeper.stdin is not None
            sweeper.stdin.close()
            sweeper.wait(_SWEEP_SECONDS)

    def inspect(self) -> RegionState:
        """The region's state, seen from this host; the first guest's if each guest has a region."""
        return inspect_region(self.region)

    def enter(self) -> None:
        """Raise VicinalError if a guest ended; open() has connected to both."""
        self.check()

    def check_room(self, ranks: int, *, heap: bool) -> None:
        """Raise VicinalError if a region has no room for its part of the ranks, or no heap."""
        for region in self.regions:
            usable_region(region, -(-ranks // len(self.regions)))
            if heap:
                check_heap(region, None)

    def _start(self, qemu: Qemu, image: GuestImage, choice: Choice) -> None:
        self._say(f"starting two guests ({choice.accelerator.description})")
        _check_memory()
        directory = self._make_directory()
        verbs = self.network is GuestNetwork.VERBS
        for number in range(len(_NAMES) if verbs else 1):
            made = create_region(
                directory / f"region{number}",
                members=self._members,
                section_bytes=self._section_bytes,
                label="guests",
                **self.region_device.fits,
            )
            self.regions.append(made.path)
        if self.region_device is RegionDevice.DOORBELL:
            self._doorbell = RunningServer(directory, self.region, clients=len(_NAMES))
        keys = make_keys(directory, pair_identities())
        wire = socket.socketpair()
        fabric = socket.socketpair() if verbs else ()
        for number, name in enumerate(_NAMES):
            region = self.regions[number % len(self.regions)]
            guest = Guest(name, directory, keys)
            self.guests.append(guest)
            hardware = QemuGuest(
                name=name,
                boot=DirectBoot(image.kernel, image.files, ("vicinal.verbs=1",) if verbs else ()),
                console=guest.console,
                control=guest.control,
                firmware_files=((IDENTITY_FILE, keys.archive(name)),),
                accelerator=choice.accelerator,
                memory_mib=MEMORY_MIB,
                region=self._device(region),
                interfaces=(OpenWire(OpenEnd(wire[number].fileno()), card_address(number)),),
                sriov_card=_sriov_card(number, fabric[number]) if fabric else None,
            )
            guest.start(qemu, hardware)
        for end in (*wire, *fabric):
            end.close()
        for guest in self.guests:
            guest.wait_ready()

    def _device(self, region: Path) -> FileRegion | DoorbellRegion | NvdimmRegion:
        """The device that gives a guest the region in this file."""
        if self._doorbell is not None:  # the doorbell server passes the memory to QEMU
            server = self._doorbell.doorbell
            return DoorbellRegion(region.name, server.socket, server.vectors)
        size = region.stat().st_size
        if self.region_device is RegionDevice.NVDIMM:
            return NvdimmRegion(region, size)
        return FileRegion(region, size)

    def _check_ready(self) -> None:
        """Check that each guest can do what jobs need. Raises VicinalError otherwise."""
        self._say("checking the network and the region in each guest")
        for number, guest in enumerate(self.guests):
            other = _NAMES[1 - number]
            for what, command in (
                (f"{other} did not accept its ssh over the network", ["ssh", other, "true"]),
                ("its user cannot use a region", ["sh", "-c", _FIND[self.region_device]]),
                *self._fabric_checks(1 - number),
            ):
                seconds = _CHECK_SECONDS * self.choice.accelerator.patience
                done = guest.run(command, timeout=seconds)
                if done.returncode != 0:
                    raise guest.failure(f"{what}: {done.stderr.strip()}")

    def _fabric_checks(self, other: int) -> list[tuple[str, list[str]]]:
        if self.network is not GuestNetwork.VERBS:
            return []
            # The ssh server there answers with its version. RDMA has no such simple test.
        what = "the other guest did not answer over the virtual functions"
        return [(what, ["nc", "-w", "20", vf_address(other), "22"])]

    def _make_directory(self) -> Path:
        """A directory for this run. Another process removes it if this process is killed."""
        if not os.access(_SHARED, os.W_OK):
            raise VicinalError(f"{_SHARED} is not writable", "mount a tmpfs there")
        directory = Path(tempfile.mkdtemp(prefix=f"vicinal-guests-{os.getpid()}-", dir=_SHARED))
        self._sweeper = subprocess.Popen(
            ["/bin/sh", "-c", 'trap "" INT TERM HUP; read -r _; rm -rf -- "$0"', str(directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return directory

    @staticmethod
    def _opened(value: _T | None) -> _T:
        if value is None:
            raise VicinalError("the guests are not running", "use GuestPair in a with statement")
        return value


def pair_identities() -> list[Identity]:
    """The identities of the two guests, each with one card on the wire between them."""
    return [
        Identity(number, name, guest_address(number), (Card(card_address(number)),))
        for number, name in enumerate(_NAMES)
    ]


def _sriov_card(number: int, end: socket.socket) -> SriovCard:
    return SriovCard(OpenEnd(end.fileno()), f"52:54:00:00:01:{number + 1:02x}")


def _check_memory() -> None:
    """Raise VicinalError if this host has too little memory for two guests."""
    import psutil

    need, free = len(_NAMES) * MEMORY_MIB << 20, psutil.virtual_memory().available
    if free < need:
        raise VicinalError(
            f"two guests need {need >> 20} MiB of memory, and {free >> 20} MiB are free",
            "end other programs, or use a larger host",
        )
