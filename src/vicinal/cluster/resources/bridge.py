"""The bridge that connects a cluster's VMs on this host, and nothing else."""

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
    """The bridge of a cluster. libvirt creates a tap at the bridge for each running VM."""

    KIND: ClassVar[str] = "bridge"

    name: str
    owner: str

    def observe(self) -> Observation:
        """Check the interface and its alias, which names the cluster if the bridge is its own."""
        directory = _INTERFACES / self.name
        if not directory.exists():
            return Observation(Condition.ABSENT)
        if not self._is_ours():
            return Observation(Condition.BROKEN, f"{self.name} is not the cluster's interface")
        if (directory / "operstate").read_text().strip() == "down" and not self._is_up():
            return Observation(Condition.BROKEN, f"the bridge {self.name} was set down")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check that `ip` is installed and that the user is root."""
        del released  # needs nothing that other resources release
        if find_tool("ip") is None:
            raise VicinalError("`ip` was not found", "install iproute2")
        if os.geteuid() != 0:
            raise VicinalError(
                f"only root can create the bridge {self.name}",
                "run the command as root, or set hypervisor to qemu:///session, which needs no "
                "bridge",
            )

    def create(self) -> None:
        """Create the bridge without an address: the host is not in the VMs' network."""
        # In one batch, so that a bridge rarely exists without its mark.
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
        # A bridge of a killed command may lack the mark; no other program uses the name.
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
                f"the bridge {self.name} could not be created or removed ({complaint})",
                "check that this user may change the host's network, or set hypervisor to "
                "qemu:///session, which needs no bridge",
            )
