"""`vicinal image`: images of virtual machines, for this host and for clouds."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.cluster.vm.image.appliance.build import appliances_directory
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.kind import GuestNetwork, kind_of
from vicinal.cluster.vm.snapshot import store

APPLIANCE = "appliance"
SNAPSHOT = "snapshot"
_PACKAGES = ("debian-*", "packages")
"""What images are built from; removed with the last image of their kind."""


def register(app: typer.Typer) -> None:
    """Add the subcommands to `vicinal`."""
    image = typer.Typer(
        help="Build images of virtual machines that contain MPI, RDMA and Vicinal.",
        no_args_is_help=True,
    )
    image.command(name="build")(build)
    image.command(name="list")(list_images)
    image.command(name="remove")(remove)
    app.add_typer(image, name="image")


def build(
    appliance: Annotated[
        Path | None,
        typer.Option(
            help="Write a disk for clouds to FILE, in qcow2 format: Debian with systemd, "
            "cloud-init, Open MPI, RDMA and Vicinal.",
            metavar="FILE",
        ),
    ] = None,
    network: Annotated[
        GuestNetwork,
        typer.Option(help="Without --appliance: the guests' network that the image is for."),
    ] = GuestNetwork.VIRTIO,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", help="With --appliance: build it from current packages, even if one is kept."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --appliance: replace FILE if it exists.")
    ] = False,
) -> int:
    """Build the image that guests boot, or an appliance. A kept image is not built again."""
    if appliance is None:
        from vicinal.cluster.vm.image.building import build_image

        with _steps() as say:
            image = build_image(say, network)
        _show({"kernel": image.kernel, "files": image.files, "version": image.kernel_version})
        return 0
    from vicinal.cluster.vm.image.appliance.build import build_appliance

    with _steps() as say:
        made = build_appliance(appliance, say, anew=anew, replace=replace)
    _show({"appliance": made.file, "content": made.key})
    return 0


def list_images(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List the kept images and the snapshots of guests."""

    images = stored_images()
    if as_json:
        rows = [
            {
                "name": image.name,
                "file": str(image.file),
                "bytes": image.size,
                "made": datetime.fromtimestamp(image.made, UTC).isoformat(timespec="seconds"),
            }
            for image in images
        ]
        typer.echo(json.dumps(rows, indent=2))
        return 0
    for image in images:
        made = datetime.fromtimestamp(image.made).strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{image.name:28} {image.size >> 20:5} MiB  {made}  {image.file}")
    return 0


def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Images and snapshots, as `vicinal image list` names them.", metavar="IMAGE"
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All images and snapshots, and the packages behind them."),
    ] = False,
) -> int:
    """Remove kept images or snapshots.

    With the last image of a kind its packages are removed too. With the image that VMs of jobs
    boot, its snapshots are removed too.
    """

    if everything == bool(names):
        raise typer.BadParameter("name the images to remove, or use --all")
    for name in remove_images(names or []):
        typer.echo(f"removed {name}")
    return 0


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Report each step on stderr, and the time that it took."""
    began, step = monotonic(), ""

    def finish() -> None:
        if step:
            typer.echo(f" ({monotonic() - began:.1f} s)", err=True)

    def say(what: str) -> None:
        nonlocal began, step
        finish()
        began, step = monotonic(), what
        typer.echo(f"vicinal: {what}", nl=False, err=True)

    try:
        yield say
        finish()
    except BaseException:
        if step:
            typer.echo(err=True)  # an error begins on a line of its own
        raise


def _show(facts: dict[str, object]) -> None:
    for name, value in facts.items():
        typer.echo(f"{name}: {value}")


@dataclass(frozen=True)
class StoredImage:
    """A kept image or snapshot."""

    name: str
    """The name for remove_images(): the kind, and a key of the contents."""
    file: Path
    size: int
    """In bytes."""
    made: float
    """Time of creation in seconds since the epoch; of a snapshot, time of its last use."""


def stored_images() -> list[StoredImage]:
    """All kept images and snapshots, the oldest first."""
    found = [
        StoredImage(f"{SNAPSHOT}-{each.key}", each.path, each.size, each.used)
        for each in store.stored()
    ]
    for kind, (directory, pattern) in _directories().items():
        for file in directory.glob(pattern):
            status = file.stat()
            number = file.stem.partition("-")[2]
            found.append(StoredImage(f"{kind}-{number}", file, status.st_size, status.st_mtime))
    return sorted(found, key=lambda image: image.made)


def remove_images(names: list[str]) -> list[str]:
    """Remove images by name, or all images if there are no names; returns the removed names.

    With the last image of a kind its packages are removed. With the image that guests of jobs boot
    all their snapshots are removed. Running guests keep what they have loaded, and copies of an
    appliance stay. Raises VicinalError for an unknown name, and then removes nothing.
    """
    stored = {image.name: image for image in stored_images()}
    unknown = [name for name in names if name not in stored]
    if unknown:
        raise VicinalError(
            f"there is no image {unknown[0]!r}", "see `vicinal image list` for the names"
        )
    removed = names or list(stored)
    if any(map(_is_booted_by_jobs, removed)):
        removed = list(dict.fromkeys([*removed, *filter(_is_snapshot, stored)]))
    store.remove(name.removeprefix(f"{SNAPSHOT}-") for name in removed if _is_snapshot(name))
    for kind, (directory, pattern) in _directories().items():
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
    """Whether this is the image that snapshots boot, and not an image with additions."""
    kind, _, rest = name.partition("-")
    return kind == GuestNetwork.VIRTIO and not rest.startswith("with-")


def _leftovers(directory: Path) -> Iterator[Path]:
    for pattern in _PACKAGES:
        yield from directory.glob(pattern)


def _directories() -> dict[str, tuple[Path, str]]:
    """The directory and the file name pattern of each kind."""
    directories = {
        network.value: (guests_directory() / kind_of(network).directory, "image-*.cpio")
        for network in GuestNetwork
    }
    directories[APPLIANCE] = appliances_directory(), "appliance-*.qcow2"
    return directories
