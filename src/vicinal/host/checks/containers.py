"""Container runtimes: which ones are installed."""

import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, passed, skipped
from vicinal.host.system import Host

_RUNTIMES = ("bwrap", "crun", "runc", "podman", "docker", "systemd-nspawn", "apptainer")


def check_containers(host: Host) -> Iterator[Finding]:
    """Report each installed runtime, and the missing runtimes in one finding."""
    missing = []
    for name in _RUNTIMES:
        path = host.program(name)
        if path is None:
            missing.append(name)
            continue
        version = _version(host.ask(name, "--version") or "")
        facts = {"runtime": name, "path": str(path), "version": version}
        yield passed(f"{name} {version} is installed", **facts)
    if missing:
        everything = len(missing) == len(_RUNTIMES)
        yield skipped(
            f"not installed: {', '.join(missing)}",
            "for containers, install one: on Debian `apt-get install crun`" if everything else "",
            missing=missing,
        )


def _version(text: str) -> str:
    found = re.search(r"\d+(?:\.[\w~+-]+)*", text)
    return found[0] if found else "of unknown version"


CONTAINERS = Check(
    "containers",
    "containers",
    "Which container runtimes are installed: bubblewrap, crun, runc, podman, docker and others",
    check_containers,
)
