"""A cluster's region: a file on tmpfs that all nodes of a host map."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, TypedDict

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.model import BackEnd, Cluster, RegionSettings
from vicinal.cluster.plan.resource import Condition, Held, Observation, Standing
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.region import create, inspect
from vicinal.region.creation import LABEL_BYTES, check_creation, file_bytes
from vicinal.region.heap_size import default_heap

_DIRECTORY = Path("/dev/shm")
_BLOCK_BYTES = 512
"""Unit of st_blocks on every file system."""


class _Made(TypedDict):
    members: int
    section_bytes: int
    heap_bytes: int
    label: str


@dataclass(frozen=True)
class RegionResource(Standing):
    """The region of a cluster's nodes on this host."""

    KIND: ClassVar[str] = "region"

    path: Path
    members: int
    section_bytes: int
    heap_bytes: int
    label: str
    device: RegionDevice | None = None

    @classmethod
    def of(cls, cluster: Cluster, region: RegionSettings) -> Self:
        """Return the region of a cluster; its name has the user's number and the cluster's name."""
        device = region.device if cluster.of(BackEnd.VM) else None
        heap_bytes = region.heap_bytes
        if heap_bytes is None:
            guests = device is not None
            module = device is RegionDevice.NVDIMM
            heap_bytes = default_heap(
                region.members,
                region.section_bytes,
                for_guests=guests and not module,
                for_nvdimm=module,
            )
        return cls(
            _DIRECTORY / f"vicinal-{os.geteuid()}-{cluster.name}",
            members=region.members,
            section_bytes=region.section_bytes,
            heap_bytes=heap_bytes,
            label=cluster.name[:LABEL_BYTES],
            device=device,
        )

    def observe(self) -> Observation:
        """Check that the file is this user's, complete, and has this resource's settings."""
        try:
            status = self.path.lstat()
        except FileNotFoundError:
            return Observation(Condition.ABSENT)
        if status.st_uid != os.geteuid():
            return Observation(Condition.BROKEN, f"{self.path} belongs to another user")
        try:
            state = inspect(self.path, patience=0)
            header, offset = state.header, state.offset
        except VicinalError as error:
            return Observation(Condition.BROKEN, error.message)
        if self.device is not None and (offset > 0) is not (self.device is RegionDevice.NVDIMM):
            return Observation(Condition.BROKEN, f"{self.path} has the layout of another device")
        if header.members != self.members or header.label != self.label:
            return Observation(Condition.BROKEN, f"{self.path} is another region")
        return Observation(Condition.READY)

    @property
    def held(self) -> Held:
        """The memory of the region's file."""
        try:
            return Held(shared_bytes=self.path.lstat().st_blocks * _BLOCK_BYTES)
        except OSError:
            return Held()

    def check(self, released: Held) -> None:
        """Check the free memory, and that this user may create the file."""
        try:
            check_creation(
                self.path,
                **self._made_with,
                **self._fits,
                released=(released.shared_bytes, released.memory_bytes),
            )
        except VicinalError as error:
            raise VicinalError(
                error.message,
                "reduce region.members, section or heap, remove old files in "
                f"{self.path.parent}, or check that you may write there",
            ) from error

    @property
    def file_bytes(self) -> int:
        """Memory that the new region takes at first, in bytes, to the nearest page."""
        heap_bytes = self.heap_bytes if self.device is not None else 0
        return file_bytes(self.members, self.section_bytes + heap_bytes, **self._fits)

    def create(self) -> None:
        """Create the file, and reserve its memory."""
        create(self.path, **self._made_with, **self._fits)

    @property
    def _made_with(self) -> _Made:
        return {
            "members": self.members,
            "section_bytes": self.section_bytes,
            "heap_bytes": self.heap_bytes,
            "label": self.label,
        }

    @property
    def _fits(self) -> Mapping[str, bool]:
        return {} if self.device is None else self.device.fits

    def remove(self) -> None:
        """Remove the file if it is this user's. Existing mappings stay valid."""
        try:
            if self.path.lstat().st_uid == os.geteuid():
                self.path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise VicinalError(
                f"the region {self.path} could not be removed ({describe_os_error(error)})",
                "remove the file by hand",
            ) from error
