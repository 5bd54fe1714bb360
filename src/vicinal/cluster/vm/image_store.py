"""What images are kept for this user: found, and removed, without building any.

So are snapshots of guests that had booted one, which are of no use without it.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.cluster.vm.image.appliance.build import appliances_directory
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.kind import GuestNetwork, kind_of
from vicinal.cluster.vm.snapshot import store

APPLIANCE = "appliance"
SNAPSHOT = "snapshot"
_PACKAGES = ("debian-*", "packages")
"""Of which images are made: gone with the last image of their kind."""


@dataclass(frozen=True)
class StoredImage:
    """An image, or a snapshot, that is kept."""

    name: str
    """What `remove_images` calls it: its kind, and a number for what it is made of."""
    file: Path
    size: int
    """Bytes."""
    made: float
    """When, in seconds since the epoch; of a snapshot, when it was last used."""


def stored_images() -> list[StoredImage]:
    """All images that are kept, and snapshots, the oldest first."""
    found = [
        StoredImage(f"{SNAPSHOT}-{each.key}", each.place, each.size, each.used)
        for each in store.stored()
    ]
    for kind, (directory, pattern) in _places().items():
        for file in directory.glob(pattern):
            status = file.stat()
            number = file.stem.partition("-")[2]
            found.append(StoredImage(f"{kind}-{number}", file, status.st_size, status.st_mtime))
    return sorted(found, key=lambda image: image.made)


def remove_images(names: list[str]) -> list[str]:
    """Remove images by their names, or all without any; what they were made of goes too.

    With the image that guests of jobs boot go all snapshots of them. Returns the names of what was
    removed. Guests that run keep what they have loaded, and copies of an appliance are not touched.
    Raises VicinalError, with nothing removed, for other names.
    """
    stored = {image.name: image for image in stored_images()}
    unknown = [name for name in names if name not in stored]
    if unknown:
        raise VicinalError(
            f"there is no image {unknown[0]}", "`vicinal image list` shows the names of all"
        )
    removed = names or list(stored)
    if any(map(_is_booted_by_jobs, removed)):
        removed = list(dict.fromkeys([*removed, *filter(_is_snapshot, stored)]))
    store.remove(name.removeprefix(f"{SNAPSHOT}-") for name in removed if _is_snapshot(name))
    for kind, (directory, pattern) in _places().items():
        if not directory.is_dir():
            continue
        with locked(directory):
            for name in removed:
                if name.startswith(f"{kind}-"):
                    stored[name].file.unlink(missing_ok=True)
            if not names or not any(directory.glob(pattern)):
                for leftover in _leftovers(directory):
                    shutil.rmtree(leftover)
    return removed


def _is_snapshot(name: str) -> bool:
    return name.startswith(f"{SNAPSHOT}-")


def _is_booted_by_jobs(name: str) -> bool:
    """Whether it is the image that snapshots are of, and not one with additions."""
    kind, _, rest = name.partition("-")
    return kind == GuestNetwork.VIRTIO and not rest.startswith("with-")


def _leftovers(directory: Path) -> Iterator[Path]:
    for pattern in _PACKAGES:
        yield from directory.glob(pattern)


def _places() -> dict[str, tuple[Path, str]]:
    """Directory and file names of each kind."""
    places = {
        network.value: (guests_directory() / kind_of(network).directory, "image-*.cpio")
        for network in GuestNetwork
    }
    places[APPLIANCE] = appliances_directory(), "appliance-*.qcow2"
    return places
