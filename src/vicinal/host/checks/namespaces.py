"""Namespaces, which isolated nodes on this host consist of."""

from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, failed, passed
from vicinal.host.system import Host

_SETTINGS = {
    "proc/sys/user/max_user_namespaces": (0, "sysctl user.max_user_namespaces=15000"),
    "proc/sys/kernel/unprivileged_userns_clone": (0, "sysctl kernel.unprivileged_userns_clone=1"),
    "proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        1,
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""Settings that can forbid namespaces: the forbidding value, and the command that changes it."""

_OWN = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork")


def check_namespaces(host: Host) -> Iterator[Finding]:
    """Enter new namespaces, as an isolated node does: as this user, or else in a user namespace."""
    facts = {place.rpartition("/")[2]: host.number(place) for place in _SETTINGS}
    tried = host.try_program("unshare", *_OWN, "true")
    if tried.worked:
        yield passed("created as this user; isolated nodes need no user namespace", **facts)
        return
    in_user = host.try_program("unshare", "--user", "--map-root-user", *_OWN, "true")
    if in_user.worked:
        yield passed("created in a user namespace", **facts)
        return
    remedies = [
        f"`{command}`"
        for place, (forbids, command) in _SETTINGS.items()
        if host.number(place) == forbids
    ]
    yield failed(
        f"isolated nodes cannot be created: {in_user.complaint}",
        " and ".join(remedies)
        or (
            "install util-linux"
            if host.program("unshare") is None
            else "allow namespaces; in a container, start it with --privileged or without its "
            "seccomp profile"
        ),
        **facts,
    )


NAMESPACES = Check(
    "namespaces",
    "namespaces",
    "Whether isolated nodes can be created, by a trial of their namespaces",
    check_namespaces,
)
