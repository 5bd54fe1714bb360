"""The keys that the VMs of several hosts share.

The command's host generates the keys, and sends them to the other hosts, which store them for their
VMs.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from vicinal.base.codec import UNRECORDED
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.plan.resource import Condition, Held, Observation, Standing
from vicinal.cluster.plan.state import cluster_directory
from vicinal.cluster.vm.guest.identity import (
    KeyTexts,
    check_keygen,
    fingerprint,
    generate_keys,
    read_keys,
    write_keys,
)


@dataclass(frozen=True)
class KeysResource(Standing):
    """A host's copy of the keys of a cluster over several hosts.

    `known_by` is the fingerprint of keys from another host, and `given` are these keys. Without
    both, this host generates the keys.
    """

    KIND: ClassVar[str] = "keys"

    directory: Path
    known_by: str = ""
    given: KeyTexts | None = field(default=None, repr=False, metadata=UNRECORDED)

    @classmethod
    def of(cls, kept_as: str, known_by: str = "", given: KeyTexts | None = None) -> Self:
        """Return the keys of a cluster or host's part; `kept_as` is its name on this host."""
        return cls(cluster_directory(kept_as) / "keys", known_by, given)

    def texts(self) -> KeyTexts | None:
        """Return the keys; None if a file is missing."""
        try:
            return read_keys(self.directory)
        except OSError:
            return None

    def observe(self) -> Observation:
        """Check that the keys exist, and have the expected fingerprint."""
        if not self.directory.exists():
            return Observation(Condition.ABSENT)
        texts = self.texts()
        if texts is None or self.known_by not in ("", fingerprint(texts)):
            return Observation(
                Condition.BROKEN,
                f"the keys in {self.directory} are incomplete or not the cluster's",
            )
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Check that the tool exists that generates keys, if this host generates them."""
        del released  # needs nothing that other resources release
        if self.given is None and not self.known_by:
            check_keygen()

    def create(self) -> None:
        """Generate the keys, or store the given keys."""
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            if self.given is None:
                generate_keys(self.directory)
            else:
                write_keys(self.directory, self.given)
        except OSError as error:
            raise VicinalError(
                f"{self.directory} could not be created ({describe_os_error(error)})",
                "set XDG_STATE_HOME to a directory that you may write to",
            ) from error

    def remove(self) -> None:
        try:
            shutil.rmtree(self.directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise VicinalError(
                f"{self.directory} could not be removed ({describe_os_error(error)})",
                "remove it by hand",
            ) from error
