"""Where things of a cluster's virtual machines are: a directory of the cluster's, on this host.

Sockets have short names: the kernel has room for 107 bytes of a socket's path.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import Keys

_LONGEST_SOCKET = 107
_SSH_ADDS = len(".0123456789abcdef")
"""ssh makes its socket under another name first."""


@dataclass(frozen=True)
class Files:
    """The files of a cluster's machines."""

    directory: Path

    @property
    def kernel(self) -> Path:
        """What the machines boot: stays as it is when the image is made anew."""
        return self.directory / "kernel"

    @property
    def system(self) -> Path:
        """Their file system, likewise."""
        return self.directory / "system"

    def system_with(self, additions: str) -> Path:
        """The same with what the cluster's file adds to it, of which this is the key, if any."""
        return self.directory / f"system-{additions}" if additions else self.system

    @property
    def keys(self) -> Keys:
        """Keys, and the archives of the machines."""
        return Keys(self.directory)

    @property
    def entered(self) -> Path:
        """Is there once somebody began to wait for the machines to boot."""
        return self.directory / "entered"

    def stem(self, number: int) -> str:
        """What the names of a machine's sockets begin with."""
        return f"{number}"

    def console(self, name: str) -> Path:
        """What a machine writes on its console."""
        return self.directory / f"{name}.console"

    def commands(self, name: str) -> Path:
        """What a machine runs at its next start: see vicinal.cluster.nodes.vm.machine."""
        return self.directory / f"{name}.commands"

    def saved(self, name: str) -> Path:
        """Is there from when a machine is saved until it begins anew: it has booted, whatever its
        console says, which QEMU begins anew with each of its own starts."""
        return self.directory / f"{name}.saved"

    def control(self, number: int) -> Path:
        """The socket of the virtio port that the host gets in by."""
        return self.directory / f"{self.stem(number)}.port"

    def master(self, number: int) -> Path:
        """The socket of the ssh that stays connected to a machine."""
        return self.directory / f"{self.stem(number)}.ssh"

    def wire(self, number: int, peer: int) -> Path:
        """A machine's end of the wire to another."""
        return self.directory / f"{number}-{peer}"

    def check_lengths(self, machines: int) -> None:
        """Raise VicinalError where the directory's path leaves no room for sockets."""
        longest = len(str(self.master(machines))) + _SSH_ADDS
        if longest > _LONGEST_SOCKET:
            raise VicinalError(
                f"the path {self.directory} is {longest - _LONGEST_SOCKET} bytes too long for "
                "sockets in it",
                "let XDG_STATE_HOME name a shorter one",
            )


@dataclass(frozen=True)
class Made:
    """What was found out and chosen when the machines' common part was made."""

    accelerator: Accelerator
    reason: str
    holds: tuple[str, ...]
    """Directories of this host that are in the image at the same place."""

    def write(self, files: Files) -> None:
        """Keep it in the machines' directory."""
        (files.directory / "made.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, files: Files) -> Self:
        """What write() kept. Raises VicinalError where that is not there."""
        try:
            kept: Mapping[str, str] = json.loads((files.directory / "made.json").read_text())
            return cls(Accelerator(kept["accelerator"]), kept["reason"], tuple(kept["holds"]))
        except (OSError, ValueError, KeyError) as error:
            raise VicinalError(
                f"what belongs to all machines is not in {files.directory}", "call `vicinal up`"
            ) from error
