"""The head of a cluster of namespaces: what its first process sets up, and how commands enter it.

Both kinds of such clusters have a head: netns/keeper.py, which ends with the command, and
container/head.py, which stays. The heads load this module at their start, so it imports little.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.layout import EXCHANGE, NODE_DIRECTORY
from vicinal.cluster.nodes.network import make_bridge, try_network
from vicinal.host import namespaces as kernel

NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID
"""Of each head, and of each node."""

PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV
"""Flags of the mounts that heads and nodes have for themselves."""

NO_OWN_NETWORK = "networks of their own: nodes share the host's network"


def entering(process: int | str, *, network: bool, user_namespace: bool = False) -> list[str]:
    """Options by which nsenter enters the namespaces of a head or a node, given a process there."""
    options = ["-t", str(process), "-m", "-u", "-i", "-p"]
    if network:
        options.append("-n")
    if user_namespace:
        options += ["-U", "--preserve-credentials"]
    return options


def enter_namespaces(more: int = 0, *, hint: str = "") -> bool:
    """Enter new namespaces, and `more` of them; returns whether that took a user namespace.

    `hint` goes on with what allows them. Raises VicinalError where the kernel refuses.
    """
    try:
        return kernel.enter_namespaces(NAMESPACES | more)
    except OSError as error:
        reason = error.strerror.lower() if error.strerror else str(error)
        raise VicinalError(
            f"this system lets us make no namespaces ({reason})",
            "run as root, or allow unprivileged user namespaces "
            f"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone{hint})",
        ) from error


def not_set_up(what: str, error: OSError) -> VicinalError:
    """The error of a head whose mounts or network failed."""
    place = f"{error.filename}: " if error.filename else ""
    return VicinalError(
        f"{what} could not be set up ({place}{error.strerror or error})",
        "see that mounting is allowed in namespaces, or run as root",
    )


def mount_proc() -> None:
    """Mount the /proc of the caller's PID namespace."""
    kernel.mount("proc", "/proc", "proc", PLAIN | kernel.MS_NOEXEC)


def mount_shared_memory() -> None:
    """Mount a /dev/shm of the caller's own."""
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", PLAIN, "mode=1777")


def mount_directories(*more: str) -> None:
    """Mount /dev/shm and /run of the head's own, with the nodes' directories and `more` in /run."""
    mount_shared_memory()
    kernel.mount("tmpfs", "/run", "tmpfs", PLAIN, "mode=755")
    for directory in (EXCHANGE, NODE_DIRECTORY, *more):
        Path(directory).mkdir()


def own_network(limitations: list[str]) -> bool:
    """Give the caller a network with a bridge; returns False, and says why, where it has none."""
    trouble = try_network()
    if trouble:
        limitations.append(f"{NO_OWN_NETWORK} ({trouble})")
        return False
    make_bridge()
    return True


def write_executables(texts: Mapping[str, str]) -> None:
    """Write programs by their paths."""
    for path, text in texts.items():
        Path(path).write_text(text)
        Path(path).chmod(0o755)


def leave_streams() -> None:
    """Give up the standard streams of the process that started the caller."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
