"""A kernel that answers real commands for fake cards. Slurm's test hosts have its cards in /sys.

    fake_kernel.py DIRECTORY NAME     in a host: make its cards, answer, and stay

Commands ask it through fake_kernel_asked.py.

The cards and their settings are files (fake_cards.py). The interface of an Ethernet VF is a
real tap that this process holds open. When the tap is closed, the interface disappears from its
network, as if a driver had been removed from a VF. All other VFs of a VLAN receive the
frames of one VF, on all hosts. The fake cards do not check forged addresses. Of vfio-pci
there are two features: a group has a file, and a VF that is open cannot be removed from
vfio-pci.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fake_cards import FakeHost, igb, mlx5

from vicinal.host.vf.privileged.system import VFIO, Host, RefusedError
from vicinal.host.vf.sysfs import holding

NAME = "fake-kernel"
VFS = 2
VLAN = "7"
SLOW = "slow"
"""A file beside the sockets. While it exists, drivers take their time to leave."""
_TUNSETIFF, _TUNGETIFF, _TUNGETDEVNETNS = 0x400454CA, 0x800454D2, 0x54E3
_TAP = 0x0002 | 0x1000  # IFF_TAP | IFF_NO_PI
_SIOCGIFFLAGS = 0x8913
_RTMGRP_LINK = 1
_IN_OPEN_CLOSE = 0x20 | 0x10 | 0x08
_AGAIN_SECONDS = 0.01
"""Delay after an event, because a file that is being opened is not yet in its process's table."""


class Kernel(FakeHost):
    """The cards of a host."""

    def __init__(self, directory: Path, name: str) -> None:
        self._taps: dict[str, int] = {}
        self._own = Path("/proc/self/ns/net").stat().st_ino
        self._directory = directory
        super().__init__(directory / f"cards-{name}", igb(), mlx5())
        for card in self.cards.values():
            self.write(self.device(card.address) / "sriov_numvfs", str(VFS))
            for settings in card.settings.values():
                settings["vlan"] = VLAN
        for number in range(VFS):  # the state after a GUID is set and a driver has read it
            vf = self.device(f"0000:02:08.{number}")
            self.files(vf / f"infiniband_verbs/uverbs{number}", dev="231:192")
            port = vf / f"infiniband/mlx5_0v{number}/ports/1"
            self.files(port, state="4: ACTIVE", gids__0="fe80:0000:0000:0000:0000:02ff:fe00:0001")
        self.files(self.sysfs / "bus/pci", drivers_probe="")
        self.groups = Path("/dev/vfio")

    def _interface(self, address: str, name: str, mac: str) -> None:
        if self.device(address).joinpath("physfn").is_symlink():
            self._taps[address] = self._tap(name, mac)
        super()._interface(address, name, mac)

    def _tap(self, name: str, mac: str = "") -> int:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _TAP))
        if mac.strip("0:"):
            Host().run("ip", "link", "set", "dev", name, "address", mac)
        return tap

    def _unbind(self, vf: str) -> None:
        while (self._directory / SLOW).exists() or self._is_opened(vf):
            time.sleep(0.05)
        if vf in self._taps:
            os.close(self._taps.pop(vf))
        super()._unbind(vf)

    def _is_opened(self, address: str) -> bool:
        """Whether a program has it open by VFIO: the group counts, because only groups are
        opened.
        """
        return self.link(self.device(address) / "driver") == VFIO and any(holding(self, address))

    def look(self) -> None:
        """Update each VF's interface in this host's network, and whether it is open."""
        for physical in self.cards:
            for address in self.vfs(physical):
                opened = int(self._is_opened(address))
                if self.read(self.device(address) / "enable") != str(opened):
                    self.files(self.device(address), enable=str(opened))
        for address, tap in [*self._taps.items()]:
            try:
                os.close(fcntl.ioctl(tap, _TUNGETDEVNETNS))
            except OSError:
                # A tap ends with its network. The kernel would give a card's interface back.
                os.close(tap)
                tap = self._taps[address] = self._tap(f"eth1v{address[-1]}")
            found = self._found(tap)
            interfaces = self.device(address) / "net"
            for other in self.names(address, "net"):
                if found is None or other != found[0]:
                    (self.sysfs / "class/net" / other).unlink(missing_ok=True)
                    for file in (interfaces / other).iterdir():
                        file.unlink()
                    (interfaces / other).rmdir()
            if found is not None:
                self.files(interfaces / found[0], flags=f"{found[1]:#x}", address="")

    def _found(self, tap: int) -> tuple[str, int] | None:
        """Name and flags of an interface. None if it is in another network or just disappears."""
        try:
            network = fcntl.ioctl(tap, _TUNGETDEVNETNS)
            own = os.fstat(network).st_ino == self._own
            os.close(network)
            name = fcntl.ioctl(tap, _TUNGETIFF, bytes(32))[:16].rstrip(b"\0")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                answer = fcntl.ioctl(asked, _SIOCGIFFLAGS, struct.pack("16s16x", name))
        except OSError:
            return None
        return (name.decode(), struct.unpack_from("H", answer, 16)[0]) if own else None

    def forward(self, tap: int, wire: socket.socket, others: list[str]) -> bool:
        """Pass a VF's frame to all others; False if the tap ended with its network."""
        try:
            frame = os.read(tap, 65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        source = next(address for address, each in self._taps.items() if each == tap)
        tagged = struct.pack("!H", self._vlan(source)) + frame
        self.deliver(tagged, tap)
        for other in others:
            with suppress(OSError):
                wire.sendto(tagged, other)
        return True

    def deliver(self, tagged: bytes, source: int = -1) -> None:
        """Give a frame to this host's VFs in the frame's VLAN."""
        (vlan,) = struct.unpack_from("!H", tagged)
        for address, tap in self._taps.items():
            if tap != source and self._vlan(address) == vlan:
                with suppress(OSError):  # the interface is down
                    os.write(tap, tagged[2:])

    def _vlan(self, address: str) -> int:
        card, number = self._card_of(address)
        return int(card.settings[number]["vlan"])

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The result of a write, or of an `ip` command about a card."""
        try:
            if "path" in asked:
                self.write(self.sysfs / "bus/pci" / asked["path"], asked["text"])
            elif "ip" in asked:
                return {"said": self.run("ip", *asked["ip"])}
        except RefusedError as error:
            return {"refused": list(error.args)}
        except OSError as error:
            return {"error": error.errno}
        finally:
            self.look()
        return {}

    @property
    def taps(self) -> list[int]:
        return list(self._taps.values())


def serve(directory: Path, name: str) -> None:
    """Make the cards, and answer from then on."""
    kernel = Kernel(directory, name)
    kernel.look()
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.bind(str(directory / f"kernel-{name}"))
    control.listen()
    wire = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    wire.bind(str(directory / f"wire-{name}"))
    wire.setblocking(False)  # frames without room are lost, as on any network
    if os.fork():
        os._exit(0)
    os.setsid()
    Path("/proc/self/comm").write_text(NAME)
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(directory / f"kernel-{name}.log", os.O_WRONLY | os.O_CREAT)
    for stream, file in ((0, nothing), (1, log), (2, log)):
        os.dup2(file, stream)
    events = [links_changed(), opened_or_closed(kernel.groups)]
    due: float | None = None
    while True:
        waits = None if due is None else max(0.0, due - time.monotonic())
        heard: list[socket.socket | int] = [control, wire, *events, *kernel.taps]
        ready = select.select(heard, [], [], waits)[0]
        if control in ready:
            with control.accept()[0] as asked:
                text = asked.makefile().readline()
                asked.sendall(json.dumps(kernel.answer(json.loads(text))).encode() + b"\n")
            continue
        while wire in ready:
            try:
                kernel.deliver(wire.recv(65536))
            except BlockingIOError:
                break
        taps = [tap for tap in kernel.taps if tap in ready]
        others = directory.glob("wire-*") if taps else ()
        wires = [str(each) for each in others if each.name != f"wire-{name}"]
        happened = [kernel.forward(tap, wire, wires) for tap in taps].count(False) > 0
        for event in events:
            if event in ready:
                drain(event)
                happened = True
        if happened or (due is not None and time.monotonic() >= due):
            kernel.look()
            due = time.monotonic() + _AGAIN_SECONDS if happened else None


def links_changed() -> int:
    """A file that is readable after interfaces of this network came, went or changed."""
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    heard.setblocking(False)
    heard.bind((0, _RTMGRP_LINK))
    return heard.detach()


def opened_or_closed(directory: Path) -> int:
    """A file that is readable after files in a directory were opened or closed."""
    library = ctypes.CDLL(None, use_errno=True)
    heard: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if heard < 0 or library.inotify_add_watch(heard, bytes(directory), _IN_OPEN_CLOSE) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return heard


def drain(event: int) -> None:
    """Read everything. Events without room were lost, but the lost event was an event too."""
    while True:
        try:
            os.read(event, 65536)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
