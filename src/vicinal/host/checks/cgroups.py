"""Control groups: their version, and whether this user's group is delegated."""

import os
from collections.abc import Iterator
from typing import Any

from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host

_ROOT = "/sys/fs/cgroup"
_WANTED = ("cpu", "cpuset", "memory", "pids")


def check_cgroups(host: Host) -> Iterator[Finding]:
    """Report version 2, version 2 beside version 1 (hybrid), or version 1; then delegation."""
    kind = host.mounts.get(_ROOT)
    second = [at for at, type_ in host.mounts.items() if type_ == "cgroup2"]
    first = [at for at, type_ in host.mounts.items() if type_ == "cgroup"]
    facts: dict[str, Any] = {"version": None, "controllers": []}
    if kind != "cgroup2":
        if not first and not second:
            yield skipped("no control groups are mounted", **facts)
            return
        shape = "version 1 and 2 side by side (hybrid)" if second else "version 1"
        facts["version"] = "hybrid" if second else "1"
        yield warned(
            f"{shape}: podman, and crun by itself, need version 2 on {_ROOT}; Vicinal's nodes do "
            "not",
            "boot with systemd.unified_cgroup_hierarchy=1, or run podman and crun in a mount "
            f"namespace of their own with cgroup2 on {_ROOT}",
            **facts,
        )
        return
    own = _own_group(host)
    place = f"{_ROOT.lstrip('/')}{own}".rstrip("/")
    controllers = (host.text(f"{place}/cgroup.controllers") or "").split()
    facts = {"version": "2", "controllers": controllers, "group": own}
    missing = [name for name in _WANTED if name not in controllers]
    shown = f"version 2, controllers {' '.join(controllers) or 'none'}"
    if host.user != 0 and not host.may(place, os.W_OK):
        yield warned(
            f"{shown}; this user's group is not delegated, so containers get no limits of their "
            "own",
            "run in a session of systemd (`systemd-run --user --scope COMMAND`), with "
            "Delegate=yes in user@.service",
            **facts,
        )
    elif missing:
        yield warned(
            f"{shown}: {', '.join(missing)} cannot be set for containers here",
            f"delegate the controllers from the group above: `echo +{' +'.join(missing)} > "
            "cgroup.subtree_control` there, or Delegate= in its systemd unit",
            **facts,
        )
    else:
        yield passed(shown, **facts)


def _own_group(host: Host) -> str:
    """This process's group of version 2, relative to the hierarchy's root."""
    for line in (host.text("proc/self/cgroup") or "").splitlines():
        if line.startswith("0::/"):
            return line.removeprefix("0::").rstrip("/")
    return ""


CGROUPS = Check(
    "cgroups", "control groups", "Version of control groups, controllers, delegation", check_cgroups
)
