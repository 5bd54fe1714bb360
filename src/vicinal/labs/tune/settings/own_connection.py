"""Interfaces that are left alone, because a mistake there could cut off the administrator."""

import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from vicinal.labs.tune.knobs.host import TunedHost

_VARIABLE = "SSH_CONNECTION"
_MOST_PARENTS = 64


def own_connection(host: TunedHost, session: str | None = None) -> dict[str, str]:
    """Interfaces that carry this session or the host's default route, with the reason as a
    phrase.

    `session` is a value of SSH_CONNECTION. The default is that of this process or of its nearest
    ancestor that has one, because sudo removes the variable.
    """
    found: dict[str, str] = {}
    for name in host.network.default_routes():
        found[name] = "it carries the default route"
    client = (_session() if session is None else session).partition(" ")[0].partition("%")[0]
    try:
        address = str(ip_address(client))
    except ValueError:
        address = ""
    if address and (name := host.network.route_to(address)):
        found[name] = f"it carries this session, which comes from {address}"
    return _with_those_below(host, found)


def _with_those_below(host: TunedHost, found: Mapping[str, str]) -> dict[str, str]:
    """Add the ports of a bridge, bond or VLAN: they carry its packets."""
    below = {link.name: link.below for link in host.network.links()}
    whole = dict(found)
    left = list(found)
    while left:
        name = left.pop()
        for port in below.get(name, ()):
            if port not in whole:
                whole[port] = f"{name} is on it, and {whole[name].removeprefix('it ')}"
                left.append(port)
    return whole


def _session() -> str:
    own = os.environ.get(_VARIABLE)
    if own is not None:
        return own
    process = os.getppid()
    for _ in range(_MOST_PARENTS):
        if process <= 1:
            break
        try:
            variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            # The command's name in parentheses comes first, and may contain any character.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except (OSError, UnicodeError):
            break
        for each in variables:
            if each.startswith(f"{_VARIABLE}=".encode()):
                return each.partition(b"=")[2].decode(errors="replace")
        process = int(fields[1])
    return ""
