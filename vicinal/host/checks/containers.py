"""Container runtimes: which there are, and whether a container comes up where that is cheap."""

import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, passed, skipped, warned
from vicinal.host.system import Host

_RUNTIMES = ("bwrap", "crun", "runc", "podman", "docker", "systemd-nspawn", "apptainer")


def check_containers(host: Host) -> Iterator[Finding]:
    """A finding for each runtime that there is, and one for those that are not."""
    missing = []
    for name in _RUNTIMES:
        path = host.program(name)
        if path is None:
            missing.append(name)
            continue
        version = _version(host.ask(name, "--version") or "")
        facts = {"runtime": name, "path": str(path), "version": version}
        if name != "bwrap":
            yield passed(f"{name} {version} is installed (not tried)", **facts)
            continue
        tried = host.try_program(
            name, "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "true"
        )
        if tried.worked:
            yield passed(f"{name} {version}: a container came up", **facts)
        else:
            yield warned(
                f"{name} {version}: a container did not come up: {tried.complaint}",
                "see the line about namespaces, which it is made of",
                **facts,
            )
    if missing:
        everything = len(missing) == len(_RUNTIMES)
        yield skipped(
            f"not installed: {', '.join(missing)}",
            "for containers, install one: on Debian `apt-get install bubblewrap`"
            if everything
            else "",
            missing=missing,
        )


def _version(text: str) -> str:
    found = re.search(r"\d+(?:\.[\w~+-]+)*", text)
    return found[0] if found else "of unknown version"


CONTAINERS = Check(
    "containers",
    "containers",
    "Container runtimes: bubblewrap (tried), crun, runc, podman, docker and others",
    check_containers,
)
