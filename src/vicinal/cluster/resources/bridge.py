"""A bridge of the host's that virtual machines are connected to; it leads nowhere else."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.network import find_tool
from vicinal.cluster.plan.resource import Condition, Held, Observation, Standing

_INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True)
class BridgeResource(Standing):
    """The bridge of a cluster. libvirt makes a tap at it for each machine that runs."""

    KIND: ClassVar[str] = "bridge"

    name: str
    owner: str

    def observe(self) -> Observation:
        """An interface of that name is ours if it says so: its alias has the cluster's name."""
        place = _INTERFACES / self.name
        if not place.exists():
            return Observation(Condition.ABSENT)
        if not self._is_ours():
            return Observation(Condition.BROKEN, f"the interface {self.name} is not ours")
        if (place / "operstate").read_text().strip() == "down" and not self._is_up():
            return Observation(Condition.BROKEN, f"the bridge {self.name} was set down")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether there is the tool that makes it, and this user may."""
        del released  # it takes nothing that others have
        if find_tool("ip") is None:
            raise VicinalError("`ip` was not found", "install iproute2")
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can make the bridge {self.name}",
                "run it as root, or let the hypervisor be qemu:///session, which needs no bridge",
            )

    def create(self) -> None:
        """Make it, without an address: the host has no part in the network."""
        # In one go: what is there has its mark.
        self._ip(
            f"link add {self.name} type bridge",
            f'link set {self.name} alias "{self._mark}"',
            f"link set {self.name} addrgenmode none",
            f"link set {self.name} up",
        )

    def remove(self) -> None:
        if self._is_ours():
            self._ip(f"link delete {self.name}")

    def _is_ours(self) -> bool:
        try:
            alias = (_INTERFACES / self.name / "ifalias").read_text().strip()
        except OSError:
            return False
        # One that a killed command made has none yet; the name is nobody else's.
        return alias in (self._mark, "")

    @property
    def _mark(self) -> str:
        return f"vicinal {self.owner}"

    def _is_up(self) -> bool:
        return bool(int((_INTERFACES / self.name / "flags").read_text(), 16) & 1)

    def _ip(self, *commands: str) -> None:
        tool = find_tool("ip")
        if tool is None:
            raise VicinalError("`ip` was not found", "install iproute2")
        done = subprocess.run(
            [tool, "-batch", "-"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            complaint = (done.stderr.strip().splitlines() or ["failed"])[0]
            raise VicinalError(
                f"the bridge {self.name} could not be made or taken away ({complaint})",
                "see that this user may change the host's network, or let the hypervisor be "
                "qemu:///session, which needs no bridge",
            )
