"""What a node sees of files: a list of mounts, which each runtime makes in its own way."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.cluster.nodes.layout import EXCHANGE, NODE_DIRECTORY

OWN_TEMPORARY = Path("/tmp")
"""Each node has a file system of its own there, for what programs take for theirs alone."""
_OWN = ("proc", "sys", "dev", "run", "tmp")
"""What of a root is not shown, since each node has its own."""


class Kind(Enum):
    """What is mounted."""

    BIND = auto()
    READ_ONLY = auto()
    """A bind mount that nothing can be written through, with what is mounted below."""
    TMPFS = auto()
    PROC = auto()
    DEV = auto()
    """The devices that every program expects, with pts, shm and mqueue."""
    SYMLINK = auto()
    """`source` is what it points to."""


@dataclass(frozen=True)
class Mount:
    """One of them; paths of the host are as the head sees them."""

    kind: Kind
    destination: str
    source: str = ""
    mode: int = 0o755
    directory: bool = True
    """Whether what is shown is one."""


def mounts(spec: ContainerSpec, directory: str) -> list[Mount]:
    """The mounts of a node in order; `directory` is the head's name for the node's own files.

    Raises VicinalError where something that is to be shown is not there.
    """
    own = [
        Mount(Kind.READ_ONLY, "/etc/hosts", layout.HOSTS, directory=False),
        Mount(Kind.READ_ONLY, "/etc/hostname", f"{directory}/hostname", directory=False),
        *_binds(spec),
    ]
    root = _resolved(spec.root)
    result = list(_root(root, Path("/"), [Path(each.destination) for each in own]))
    result += [
        Mount(Kind.PROC, "/proc"),
        Mount(Kind.DEV, "/dev"),
        Mount(Kind.READ_ONLY, "/sys", "/sys"),
        Mount(Kind.TMPFS, str(OWN_TEMPORARY), mode=0o1777),
        Mount(Kind.TMPFS, "/run"),
        Mount(Kind.BIND, EXCHANGE, EXCHANGE),
        Mount(Kind.TMPFS, NODE_DIRECTORY),
        *(Mount(Kind.READ_ONLY, str(each), layout.host_path(each)) for each in shown(spec)),
        *own,
    ]
    return result


def shown(spec: ContainerSpec) -> list[Path]:
    """Directories below /tmp that a node sees nevertheless.

    It is the tree that Vicinal runs from, where somebody tries it there: its provider, its MPI
    libraries and its programs are what a node of the host's own root is for.
    """
    tree = checkout()
    if tree is None or not tree.is_relative_to(OWN_TEMPORARY) or Path(spec.root) != Path("/"):
        return []
    return [tree]


def _binds(spec: ContainerSpec) -> Iterator[Mount]:
    for bind in spec.binds:
        kind = Kind.READ_ONLY if bind.read_only else Kind.BIND
        source = _resolved(bind.source)
        yield Mount(kind, bind.destination, layout.host_path(source), directory=source.is_dir())
    for region in spec.regions:
        yield Mount(
            Kind.BIND,
            f"{EXCHANGE}/{region.name}",
            layout.host_path(_resolved(region.path)),
            directory=False,
        )


def unreadable(spec: ContainerSpec) -> Iterator[VicinalError]:
    """What of the host a node could not be shown, regions aside, which are made just before it."""
    for path in (spec.root, *(bind.source for bind in spec.binds)):
        try:
            _resolved(path)
        except VicinalError as error:
            yield error


def _resolved(path: str) -> Path:
    try:
        return Path(path).resolve(strict=True)
    except OSError as error:
        raise VicinalError(
            f"{path} cannot be shown in a node ({describe_os_error(error)})",
            "see that it is there, and that you may read it",
        ) from error


def _root(root: Path, below: Path, needed: list[Path]) -> Iterator[Mount]:
    """Mounts that show what is in one directory of a root.

    A directory where a mount point of `needed` is missing is shown entry by entry, for then
    the runtime can make it: the root itself stays as it is.
    """
    inside = root / below.relative_to("/")
    try:
        entries = sorted(os.scandir(inside), key=lambda entry: entry.name)
    except OSError as error:
        raise VicinalError(
            f"the root {inside} cannot be shown in a node ({describe_os_error(error)})",
            "name a directory with a file system in it that you may read",
        ) from error
    for entry in entries:
        place = below / entry.name
        if below == Path("/") and (entry.name in _OWN or entry.is_file(follow_symlinks=False)):
            continue
        if entry.is_symlink():
            yield Mount(Kind.SYMLINK, str(place), str(Path(entry.path).readlink()))
        elif not os.access(entry.path, os.R_OK | (os.X_OK if entry.is_dir() else 0)):
            continue  # an ordinary user cannot show it
        elif entry.is_dir() and any(_is_missing(root, place, each) for each in needed):
            yield from _root(root, place, needed)
        else:
            source = layout.host_path(Path(entry.path))
            yield Mount(Kind.READ_ONLY, str(place), source, directory=entry.is_dir())


def _is_missing(root: Path, directory: Path, needed: Path) -> bool:
    if directory == needed or not needed.is_relative_to(directory):
        return False
    return not (root / needed.relative_to("/")).exists()
