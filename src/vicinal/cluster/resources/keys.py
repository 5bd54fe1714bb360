"""The keys that virtual machines of several hosts have in common.

The command's host makes them, and hands them to the others, which keep them for their machines.
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
    """The keys of a cluster over several hosts, on one of them.

    `known_by` is the fingerprint of those that others made, and `given` are these; without them
    they are made here.
    """

    KIND: ClassVar[str] = "keys"

    directory: Path
    known_by: str = ""
    given: KeyTexts | None = field(default=None, repr=False, metadata=UNRECORDED)

    @classmethod
    def of(cls, kept_as: str, known_by: str = "", given: KeyTexts | None = None) -> Self:
        """Those of the cluster that is kept under this name."""
        return cls(cluster_directory(kept_as) / "keys", known_by, given)

    def texts(self) -> KeyTexts | None:
        """The keys; None where they are not there, or not whole."""
        try:
            return read_keys(self.directory)
        except OSError:
            return None

    def observe(self) -> Observation:
        """They are there, and those that are meant."""
        if not self.directory.exists():
            return Observation(Condition.ABSENT)
        texts = self.texts()
        if texts is None or self.known_by not in ("", fingerprint(texts)):
            return Observation(Condition.BROKEN, f"the keys in {self.directory} are not whole")
        return Observation(Condition.READY)

    def check(self, released: Held) -> None:
        """Whether there is the tool that makes them."""
        del released  # it takes nothing that others have
        if self.given is None and not self.known_by:
            check_keygen()

    def create(self) -> None:
        """Make them, or keep what was given."""
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            if self.given is None:
                generate_keys(self.directory)
            else:
                write_keys(self.directory, self.given)
        except OSError as error:
            raise VicinalError(
                f"{self.directory} could not be made ({describe_os_error(error)})",
                "let XDG_STATE_HOME name a directory that you may write to",
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
