"""Limits on a node's processors and memory, by control groups if this user may create any.

Hosts use version 1, version 2 or both, and a process in a container may see only a part of the
hierarchies. So the directory of each controller is looked up, and tried.
"""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.nodes.container.layout import HOST_CGROUPS
from vicinal.cluster.nodes.container.spec import ContainerSpec

_REMOVE_SECONDS = 10.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Group:
    """A control group for a node; it may not exist yet."""

    path: str
    """Its directory on the host."""
    controllers: tuple[str, ...]
    version: int


def candidates(spec: ContainerSpec, identifier: str) -> list[Group]:
    """Return the groups that a node's limits need, in the order to try; empty without limits."""
    wanted = (["cpuset"] if spec.cpus else []) + (["memory"] if spec.memory is not None else [])
    name = f"vicinal-{spec.cluster}-{identifier}-{spec.name}"
    unified: dict[Path, list[str]] = {}
    groups = []
    for controller in wanted:
        own = _own_group(controller)
        if own is not None:
            groups.append(Group(str(own / name), (controller,), 1))
        for parent in _unified_parents(controller):
            unified.setdefault(parent, []).append(controller)
    groups += [
        Group(str(parent / name), tuple(controllers), 2) for parent, controllers in unified.items()
    ]
    return groups


def create(spec: ContainerSpec, groups: list[Group]) -> tuple[list[Group], list[str]]:
    """Create groups of the candidates until each controller has one.

    Returns the created groups, and a phrase for each limit that has no group. A candidate that
    cannot be created is no error.
    """
    done: list[Group] = []
    limitations = []
    troubles: dict[str, str] = {}
    for group in groups:
        missing = [each for each in group.controllers if each not in _controllers(done)]
        if missing:
            try:
                _make(spec, Group(group.path, tuple(missing), group.version))
            except OSError as error:
                _remove_directory(Path(group.path))
                troubles |= dict.fromkeys(missing, describe_os_error(error))
            else:
                done.append(Group(group.path, tuple(missing), group.version))
    for wanted, controller, instead in (
        (bool(spec.cpus), "cpuset", "its processors are given by affinity, which it can change"),
        (spec.memory is not None, "memory", "its memory is not limited"),
    ):
        if wanted and controller not in _controllers(done):
            why = troubles.get(controller, "no such controller")
            limitations.append(
                f"a control group for {controller} of {spec.name}: {instead} ({why})"
            )
    return done, limitations


def remove(groups: list[Group]) -> None:
    """Kill all processes in groups, and remove the groups. Raises VicinalError if that fails."""
    for group in groups:
        directory = Path(group.path)
        deadline = time.monotonic() + _REMOVE_SECONDS
        while directory.is_dir():
            for process in _processes(directory):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if not _remove_directory(directory):
                if time.monotonic() > deadline:
                    raise VicinalError(
                        f"the control group {directory} cannot be removed",
                        "see which processes are in it: its file cgroup.procs",
                    )
                time.sleep(_POLL_SECONDS)


def _controllers(groups: list[Group]) -> set[str]:
    return {controller for group in groups for controller in group.controllers}


def _make(spec: ContainerSpec, group: Group) -> None:
    directory = Path(group.path)
    parent = directory.parent
    if group.version == 2:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        for controller in group.controllers:
            if controller not in enabled:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    directory.mkdir(exist_ok=True)
    if "cpuset" in group.controllers:
        if group.version == 1:
            # A new cpuset accepts no process until it has memory nodes and processors.
            (directory / "cpuset.mems").write_text((parent / "cpuset.mems").read_text())
        (directory / "cpuset.cpus").write_text(",".join(map(str, spec.cpus)))
    if "memory" in group.controllers:
        names = ("memory.max", "memory.swap.max", "0")
        if group.version == 1:
            limit = str(spec.memory)
            names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit)
        (directory / names[0]).write_text(str(spec.memory))
        with suppress(OSError):  # a kernel without swap accounting has no such file
            (directory / names[1]).write_text(names[2])


def _own_group(controller: str) -> Path | None:
    """Return the directory of this process's group in a controller's version 1 hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            for kind, options, root, mount in _hierarchies():
                if kind == "cgroup" and controller in options:
                    return _below(mount, root, path)
    return None


def _unified_parents(controller: str) -> list[Path]:
    """Return the version 2 groups below which a group with this controller may be created."""
    own = next(
        (
            line[3:]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        ),
        None,
    )
    found = []
    for kind, _, root, mount in _hierarchies():
        if kind == "cgroup2" and own is not None:
            for parent in (_below(mount, root, own), mount):
                with suppress(OSError):
                    offered = (parent / "cgroup.controllers").read_text().split()
                    if controller in offered and parent not in found:
                        found.append(parent)
    return found


def _below(mount: Path, root: str, path: str) -> Path:
    """Return the directory of the group `path`, in a mount that shows the hierarchy below `root`.

    If the mount does not show the group, return the mount itself.
    """
    try:
        group = mount / Path(path).relative_to(root)
    except ValueError:
        return mount
    return group if group.is_dir() else mount


def _hierarchies() -> list[tuple[str, list[str], str, Path]]:
    """Return type, options, root and mount point of each mounted hierarchy of control groups."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        front, _, back = line.partition(" - ")
        kind, _, options = back.split(" ", 2)
        fields = front.split()
        if kind in ("cgroup", "cgroup2") and Path(fields[4]).is_relative_to(HOST_CGROUPS):
            found.append((kind, options.split(","), fields[3], Path(fields[4])))
    return found


def _processes(directory: Path) -> list[int]:
    try:
        return [int(line) for line in (directory / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _remove_directory(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
