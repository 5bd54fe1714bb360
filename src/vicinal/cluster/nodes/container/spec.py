"""The specification of a container node."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import show_short_size
from vicinal.cluster.nodes.layout import HEAD

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LEAST_MEMORY = 4 << 20
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_RESERVED = ("remote-shell", "rank", "nodes", "hosts")


def check_name(name: str, what: str) -> str:
    """Return the name of a cluster or node. Raises VicinalError if it is no valid host name."""
    if not _NAME.fullmatch(name) or name in (HEAD, "localhost"):
        raise VicinalError(
            f"{name!r} cannot be the name of a {what}",
            f"use lower-case letters, digits and hyphens, at most 63 characters, and not {HEAD!r}",
        )
    return name


@dataclass(frozen=True)
class Bind:
    """A file or directory of the host to show in a node."""

    source: str
    """Absolute path on the host."""
    destination: str
    """Absolute path in the node."""
    read_only: bool = True

    def __post_init__(self) -> None:
        for path in (self.source, self.destination):
            if not path.startswith("/") or ".." in Path(path).parts:
                raise VicinalError(f"the path {path!r} is not absolute", "give an absolute path")
        if Path(self.destination) == Path("/"):
            raise VicinalError(
                "nothing can be mounted on / of a node", "set the node's root instead"
            )


@dataclass(frozen=True)
class RegionFile:
    """A region of the host to show in a node, as /run/vicinal/NAME."""

    path: str
    name: str = "region"

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name) or self.name in _RESERVED:
            raise VicinalError(
                f"a region cannot have the name {self.name!r}",
                "use letters, digits, dots, hyphens and underscores",
            )
        if not self.path.startswith("/"):
            raise VicinalError(f"the path {self.path!r} is not absolute", "give an absolute path")


@dataclass(frozen=True)
class ContainerSpec:
    """One node of a cluster of containers. Raises VicinalError for an invalid value."""

    cluster: str
    name: str
    """Its host name."""
    root: str = "/"
    """Directory whose content the node sees, read-only: the host's root, or an unpacked image."""
    cpus: tuple[int, ...] = ()
    """Numbers of the processors that the node may use; empty: all processors."""
    memory: int | None = None
    """Limit of the node's memory in bytes, without swap; None: no limit."""
    address: str | None = None
    """IPv4 address in the cluster's network; None: the first free address."""
    joined: bool = True
    """Whether the node is in the cluster's network; if not, `address` is on its loopback."""
    regions: tuple[RegionFile, ...] = ()
    binds: tuple[Bind, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the node's first process."""

    def __post_init__(self) -> None:
        check_name(self.cluster, "cluster")
        check_name(self.name, "node")
        if not self.root.startswith("/"):
            raise VicinalError(f"the root {self.root!r} is not absolute", "give an absolute path")
        absent = sorted(set(self.cpus) - set(range(os.cpu_count() or 1)))
        if absent:
            raise VicinalError(
                f"{self.name} cannot have processor {absent[0]}: this host has no such processor",
                f"use numbers from 0 to {(os.cpu_count() or 1) - 1}",
            )
        if self.memory is not None and self.memory < _LEAST_MEMORY:
            raise VicinalError(
                f"{show_short_size(self.memory)} of memory is too little for {self.name}",
                f"give it {show_short_size(_LEAST_MEMORY)} or more",
            )
        if self.address is not None:
            try:
                ipaddress.IPv4Address(self.address)
            except ValueError:
                raise VicinalError(
                    f"{self.address!r} is not an IPv4 address", "write it as 10.0.0.1"
                ) from None
