"""The files that a node sees, as a list of mounts, which each runtime carries out."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.native import own_trees
from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.spec import ContainerSpec
from vicinal.cluster.nodes.layout import EXCHANGE, NODE_DIRECTORY

OWN_TEMPORARY = Path("/tmp")
"""Each node has a private file system here, for files that programs consider private."""
_OWN = ("proc", "sys", "dev", "run", "tmp")
"""Directories of a root that are not shown, because each node has its own."""


class Kind(Enum):
    """Kinds of mounts."""

    BIND = auto()
    READ_ONLY = auto()
    """A read-only bind mount, with the mounts below it."""
    TMPFS = auto()
    PROC = auto()
    DEV = auto()
    """The usual device files, with /dev/pts, /dev/shm and /dev/mqueue."""
    SYMLINK = auto()
    """A symbolic link to `source`."""


@dataclass(frozen=True)
class Mount:
    """One mount of a node; `source` is a path in the head."""

    kind: Kind
    destination: str
    source: str = ""
    mode: int = 0o755
    directory: bool = True
    """Whether `source` is a directory."""


def mounts(spec: ContainerSpec, directory: str) -> list[Mount]:
    """Return the mounts of a node in order; `directory` is the head's path of the node's files.

    Raises VicinalError if a file or directory to show does not exist.
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
    """Return the directories below /tmp that a node sees although it has its own /tmp.

    If Vicinal runs from a checkout or an environment below /tmp, a node with the host's root sees
    it. The node needs the provider, MPI libraries and programs.
    """
    if Path(spec.root) != Path("/"):
        return []
    return [tree for tree in own_trees() if tree.is_relative_to(OWN_TEMPORARY)]


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
    """Yield an error for each file of the host that cannot be mounted in a node.

    Regions are not checked, because they are created just before the node.
    """
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
            f"{path} cannot be mounted in a node ({describe_os_error(error)})",
            "check that it exists and that you may read it",
        ) from error


def _root(root: Path, below: Path, needed: list[Path]) -> Iterator[Mount]:
    """Yield the mounts that show the content of the directory `below` of a root.

    A directory in which a mount point of `needed` is missing is shown entry by entry. The runtime
    can then create the mount point without a change to the root itself.
    """
    inside = root / below.relative_to("/")
    try:
        entries = sorted(os.scandir(inside), key=lambda entry: entry.name)
    except OSError as error:
        raise VicinalError(
            f"the root {inside} cannot be mounted in a node ({describe_os_error(error)})",
            "name a readable directory that contains a root file system",
        ) from error
    for entry in entries:
        path = below / entry.name
        if below == Path("/") and (entry.name in _OWN or entry.is_file(follow_symlinks=False)):
            continue
        if entry.is_symlink():
            yield Mount(Kind.SYMLINK, str(path), str(Path(entry.path).readlink()))
        elif not os.access(entry.path, os.R_OK | (os.X_OK if entry.is_dir() else 0)):
            continue  # an ordinary user cannot show it
        elif entry.is_dir() and any(_is_missing(root, path, each) for each in needed):
            yield from _root(root, path, needed)
        else:
            source = layout.host_path(Path(entry.path))
            yield Mount(Kind.READ_ONLY, str(path), source, directory=entry.is_dir())


def _is_missing(root: Path, directory: Path, needed: Path) -> bool:
    if directory == needed or not needed.is_relative_to(directory):
        return False
    return not (root / needed.relative_to("/")).exists()
