"""What a cluster file adds to its VMs' image: Debian packages, and files of this host.

The additions are a separate archive. Linux unpacks it after the image, so its files replace those
of the image. Packages are unpacked with all dependencies that the image lacks, and not configured.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import locked, replaced
from vicinal.cluster.file.model import ImageAdditions
from vicinal.cluster.vm.image.archive import Archive
from vicinal.cluster.vm.image.building import (
    GuestImage,
    content_key,
    guests_directory,
    merged_name,
    system_directory,
)
from vicinal.cluster.vm.image.kind import GuestNetwork, kind_of
from vicinal.cluster.vm.image.layout import HOME, USER_ID
from vicinal.cluster.vm.image.packages import RECORD, PackageStore

_LEFT_OUT = ("boot", "usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man")
_STANDING = ("bin", "lib", "lib64", "sbin", "tmp", "root", "home", HOME.lstrip("/"))
"""Directories of the image that the archive must not replace: links, or owned by a user."""
_MOST_KEPT = 4


def additions_key(additions: ImageAdditions) -> str:
    """A key that identifies the present contents of these additions; "" if there are none.

    Raises VicinalError if a file is missing.
    """
    if not additions:
        return ""
    system = _system()
    described = [system.name, repr(additions.packages)]
    for source, name in _files(additions):
        status = source.lstat()
        target = str(source.readlink()) if source.is_symlink() else ""
        described.append(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_mode} {target}")
    return content_key(described)


def build_additions(additions: ImageAdditions, say: Callable[[str], None]) -> Path:
    """The archive of these additions, built if it does not exist. The image must exist.

    `say` receives each step. Raises VicinalError if a package or file cannot be obtained.
    """
    directory = guests_directory()
    target = directory / f"image-with-{additions_key(additions)}.cpio"
    with locked(directory):
        packages = _packages(additions.packages, say) if additions.packages else None
        if not target.is_file():
            say("writing the additions to the guest image")
            with replaced(target) as fresh:
                _write(fresh, additions, packages)
            kept = sorted(directory.glob("*image-with-*"), key=lambda file: file.stat().st_mtime)
            for old in kept[:-_MOST_KEPT]:
                old.unlink()
    return target


def join(image: GuestImage, additions: Path, target: Path) -> None:
    """Write an image followed by its additions, with the modification time of the image."""
    with target.open("wb") as whole:
        for part in (image.files, additions):
            with part.open("rb") as content:
                shutil.copyfileobj(content, whole)
    shutil.copystat(image.files, target)


def _system() -> Path:
    return system_directory(guests_directory(), kind_of(GuestNetwork.VIRTIO))


def _packages(names: tuple[str, ...], say: Callable[[str], None]) -> Path:
    """The directory with the unpacked packages."""
    system = _system()
    target = system.with_name(f"debian-{content_key([system.name, *names])}")
    if target.is_dir():
        return target
    store = target.with_name("packages")
    shutil.rmtree(store, ignore_errors=True)
    fresh = target.with_name("debian-part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    say(f"fetching {' '.join(names)} for the guests")
    try:
        PackageStore(store, installed=system / RECORD).unpack(names, fresh)
    except VicinalError as error:
        shutil.rmtree(fresh)
        raise VicinalError(
            error.message,
            "check that image.packages names packages of this host's Debian release, and that "
            "`apt-get update` works",
        ) from error
    finally:
        shutil.rmtree(store)
    fresh.rename(target)
    return target


def _write(target: Path, additions: ImageAdditions, packages: Path | None) -> None:
    with Archive(target, there=_STANDING) as archive:
        for source, name in _files(additions):
            owner = USER_ID if f"/{name}".startswith(f"{HOME}/") else 0
            archive.copy(source, name, owner)
        if packages is not None:
            for path in sorted(packages.rglob("*")):
                name = merged_name(path.relative_to(packages))
                if not _left_out(name):
                    archive.copy(path, name)


def _files(additions: ImageAdditions) -> Iterator[tuple[Path, str]]:
    """Each added file and directory, with its name in the archive."""
    for named, target in additions.files:
        try:
            source = Path(named).resolve(strict=True)
            yield source, merged_name(Path(target.lstrip("/")))
            if source.is_dir():
                for path in sorted(source.rglob("*")):
                    relative = Path(target.lstrip("/")) / path.relative_to(source)
                    yield path, merged_name(relative)
        except OSError as error:
            raise VicinalError(
                f"image.files names {named!r}, which cannot be read ({describe_os_error(error)})",
                "correct the cluster file, or create the file",
            ) from error


def _left_out(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}/") for each in (*_LEFT_OUT, "var/lib/dpkg"))
