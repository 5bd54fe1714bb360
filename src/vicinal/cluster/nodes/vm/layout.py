"""The files of a cluster's virtual machines, in a directory of the cluster on this host.

Socket names are short, because the kernel limits a socket's path to 107 bytes.
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
"""ssh first creates its socket under a longer name."""


@dataclass(frozen=True)
class Files:
    """The files of a cluster's VMs."""

    directory: Path

    @property
    def kernel(self) -> Path:
        """The kernel that the VMs boot; it stays unchanged if the image is rebuilt."""
        return self.directory / "kernel"

    @property
    def system(self) -> Path:
        """The VMs' file system; it stays unchanged too."""
        return self.directory / "system"

    def system_with(self, additions: str) -> Path:
        """The file system with the additions of this key; without additions if the key is ""."""
        return self.directory / f"system-{additions}" if additions else self.system

    @property
    def keys(self) -> Keys:
        """The keys, and the VMs' identity archives."""
        return Keys(self.directory)

    @property
    def entered(self) -> Path:
        """A file that exists once a command has begun to wait for the VMs to boot."""
        return self.directory / "entered"

    def stem(self, number: int) -> str:
        """The beginning of the names of a VM's sockets."""
        return f"{number}"

    def console(self, name: str) -> Path:
        """The output of a VM's console."""
        return self.directory / f"{name}.console"

    def commands(self, name: str) -> Path:
        """The commands of a VM's next boot; see vicinal.cluster.nodes.vm.vm."""
        return self.directory / f"{name}.commands"

    def saved(self, name: str) -> Path:
        """A file that exists from the saving of a VM until its next boot.

        It says that the VM has booted. The console cannot say so, because QEMU truncates the
        console at each of its own starts.
        """
        return self.directory / f"{name}.saved"

    def control(self, number: int) -> Path:
        """The socket of the virtio port by which the host connects to the VM."""
        return self.directory / f"{self.stem(number)}.port"

    def master(self, number: int) -> Path:
        """The socket of the ssh process that stays connected to a VM."""
        return self.directory / f"{self.stem(number)}.ssh"

    def wire(self, number: int, peer: int) -> Path:
        """A VM's end of the wire to another VM."""
        return self.directory / f"{number}-{peer}"

    def check_lengths(self, vms: int) -> None:
        """Raise VicinalError if the directory's path is too long for sockets in it."""
        longest = len(str(self.master(vms))) + _SSH_ADDS
        if longest > _LONGEST_SOCKET:
            raise VicinalError(
                f"the path {self.directory} is {longest - _LONGEST_SOCKET} bytes too long for "
                "sockets in it",
                "set XDG_STATE_HOME to a shorter path",
            )


@dataclass(frozen=True)
class Made:
    """What was detected and chosen when the VMs' common part was created."""

    accelerator: Accelerator
    reason: str
    holds: tuple[str, ...]
    """Directories of this host that the image contains at the same path."""

    def write(self, files: Files) -> None:
        """Write the values to the VMs' directory."""
        (files.directory / "made.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, files: Files) -> Self:
        """Read what write() wrote. Raises VicinalError if it is missing or invalid."""
        try:
            kept: Mapping[str, str] = json.loads((files.directory / "made.json").read_text())
            return cls(Accelerator(kept["accelerator"]), kept["reason"], tuple(kept["holds"]))
        except (OSError, ValueError, KeyError) as error:
            raise VicinalError(
                f"the common files of the VMs are missing in {files.directory}",
                "call `vicinal up`",
            ) from error
