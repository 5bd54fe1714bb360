"""`vicinal image`: images of virtual machines, for this host and for other people's clouds."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from vicinal.cluster.vm.image.kind import GuestNetwork


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    image = typer.Typer(
        help="Build images of virtual machines, with MPI, RDMA and Vicinal in them.",
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
            help="Write a disk for other people's clouds, a qcow2 file: Debian with systemd, "
            "cloud-init, Open MPI, RDMA and Vicinal.",
            metavar="FILE",
        ),
    ] = None,
    network: Annotated[
        GuestNetwork,
        typer.Option(help="Without --appliance: for guests of which network the image is."),
    ] = GuestNetwork.VIRTIO,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", help="With --appliance: of the packages of today, though one is kept."
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --appliance: replace FILE if it is there.")
    ] = False,
) -> int:
    """Build the image that guests boot from, or an appliance; what is kept is not built again."""
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
    """Show the images that are kept, and the snapshots of guests."""
    from vicinal.cluster.vm.image_store import stored_images

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
        typer.Option("--all", help="All images and snapshots, and the packages they are made of."),
    ] = False,
) -> int:
    """Remove images or snapshots that are kept, and what goes with the last image of a kind.

    That is its packages, and of the image that jobs' machines boot the snapshots too.
    """
    from vicinal.cluster.vm.image_store import remove_images

    if everything == bool(names):
        raise typer.BadParameter("name the images to remove, or say --all")
    for name in remove_images(names or []):
        typer.echo(f"removed {name}")
    return 0


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Say on stderr what is being done, each step with how long the one before it took."""
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
            typer.echo(err=True)  # an error begins a line of its own
        raise


def _show(facts: dict[str, object]) -> None:
    for name, value in facts.items():
        typer.echo(f"{name}: {value}")
