"""Access to this host's VFs: sysfs, a few files, and programs of the system."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

VFIO = "vfio-pci"

POLICIES = {"auto": "Follow", "enable": "Up", "disable": "Down"}
"""Link states, with their names in the vendor's mlx5 driver."""

_ETHERNET_CLASS = "0x0200"
_COMMAND_SECONDS = 20.0

NOT_TAKEN = "see whether the card's driver takes it (rates only while its link is up), and `dmesg`"


class RefusedError(Exception):
    """An operation was refused: the reason, and a remedy."""


class Host:
    """The directories that the helper reads and writes; tests replace them by a fake host."""

    sysfs = Path("/sys")
    records = Path("/run/vicinal-vfs")
    groups = Path("/dev/vfio")

    def device(self, address: str) -> Path:
        """Return the directory of a PCI device."""
        return self.sysfs / "bus/pci/devices" / address

    def read(self, path: Path) -> str:
        """Return the text of an attribute without white space at its ends; empty if it cannot be
        read."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""

    def write(self, path: Path, text: str) -> None:
        """Write an attribute in one write(2). Raises OSError."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def give(self, path: Path, user: int) -> None:
        """Make a user the owner of a file. Raises OSError."""
        os.chown(path, user, -1)

    def run(self, name: str, *arguments: str) -> str:
        """Return the output of a program of the system. Raises RefusedError with the program's
        complaint."""
        program = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
        if program is None:
            raise RefusedError(f"the program {name} was not found", "install its package")
        done = subprocess.run(
            [program, *arguments],
            env={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            complaint = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            raise RefusedError(f"`{name} {' '.join(arguments)}`: {complaint}", NOT_TAKEN)
        return done.stdout

    def link(self, path: Path) -> str:
        """Return the last part of a symbolic link's target; empty if there is no link."""
        return path.readlink().name if path.is_symlink() else ""

    def vfs(self, physical: str) -> list[str]:
        """Return the addresses of a physical function's virtual functions, ordered by number."""
        links = {int(each.name[6:]): each for each in self.device(physical).glob("virtfn[0-9]*")}
        return [self.link(links[number]) for number in sorted(links)]

    def names(self, address: str, kind: str) -> list[str]:
        """Return the names of a device's network interfaces ("net") or RDMA devices
        ("infiniband")."""
        directory = self.device(address) / kind
        return sorted(each.name for each in directory.iterdir()) if directory.is_dir() else []

    def use(self, address: str) -> str:
        """Return why a VF is in use; empty if the VF is unused."""
        device = self.device(address)
        driver = self.link(device / "driver")
        if driver == VFIO:
            # Only an open vfio device is enabled. All users can read this, but not which process
            # has it open.
            opened = self.read(device / "enable") not in ("", "0")
            return "a program has it open through vfio-pci" if opened else ""
        interfaces = self.names(address, "net")
        for name in interfaces:
            if int(self.read(device / "net" / name / "flags") or "0", 0) & 1:
                return f"its interface {name} is up"
        ethernet = self.read(device / "class").startswith(_ETHERNET_CLASS)
        if driver and ethernet and not interfaces:
            return f"its interface, of driver {driver}, is in another network namespace"
        return ""


def set_by_ip(host: Host, interface: str) -> dict[int, dict[str, str]]:
    """Return the settings of each VF of a card according to `ip`, in the words that set
    them."""
    found = {}
    for card in json.loads(host.run("ip", "-j", "link", "show", "dev", interface)):
        for vf in card.get("vfinfo_list", []):
            rate, vlans = vf.get("rate", {}), vf.get("vlan_list") or [{}]
            values = {"mac": vf.get("address"), "vlan": vlans[0].get("vlan", 0)}
            values |= {name: vf.get(name) for name in ("spoofchk", "trust")}
            values |= {f"{end}_tx_rate": rate.get(f"{end}_tx") for end in ("min", "max")}
            values["state"] = vf.get("link_state")
            words = {name: word(value) for name, value in values.items() if value is not None}
            found[int(vf["vf"])] = words
    return found


def read_settings(host: Host, physical: str, *, infiniband: bool) -> dict[int, dict[str, str]]:
    """Return the settings of each VF according to its card, if they can be read.

    The vendor's mlx5 driver shows settings as files; for other drivers `ip` shows them.
    """
    words = {text: name for name, text in POLICIES.items()}
    found = {}
    for directory in (host.device(physical) / "sriov").glob("[0-9]*"):
        policy = host.read(directory / "policy")
        found[int(directory.name)] = {
            "node_guid": host.read(directory / "node"),
            "port_guid": host.read(directory / "port"),
            "policy": words.get(policy, policy),
        }
    interfaces = host.names(physical, "net")
    if not found and interfaces:
        with contextlib.suppress(RefusedError, ValueError):  # `ip` is missing, or has no JSON
            found = set_by_ip(host, interfaces[0])
        if infiniband:  # InfiniBand's hardware address cannot be set
            found = {number: {"policy": each.get("state", "")} for number, each in found.items()}
    return found


def word(value: object) -> str:
    """Return a setting in its written form: on or off for a bool."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
