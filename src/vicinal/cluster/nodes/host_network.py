"""The host's network, by `ip`: existing bridges and taps, and the interfaces that Vicinal adds.

The state comes from the kernel, not from /sys, which may show another network namespace.
"""

import grp
import json
import os
import pwd
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.network import find_tool

_SECONDS = 30.0
_TUN = Path("/dev/net/tun")


def ip(arguments: Sequence[str], network: Path | None = None, *, lines: Sequence[str] = ()) -> str:
    """Run `ip` here or in the network namespace of a file; return its output.

    `lines` are commands for `ip -batch -`, which ends at the first failure. Raises VicinalError.
    """
    return _run("ip", arguments, network, lines)


def bridge(
    arguments: Sequence[str], network: Path | None = None, *, lines: Sequence[str] = ()
) -> str:
    """Run `bridge`, the tool for ports and forwarding tables, as ip() runs `ip`."""
    return _run("bridge", arguments, network, lines)


def _run(tool: str, arguments: Sequence[str], network: Path | None, lines: Sequence[str]) -> str:
    enter = [] if network is None else [find_tool("nsenter") or "nsenter", f"--net={network}"]
    command = [*enter, find_tool(tool) or tool, *arguments]
    shown = " ".join([tool, *arguments])
    try:
        done = subprocess.run(
            command,
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise VicinalError(
            f"the tool {error.filename} was not found", "install iproute2 and util-linux"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"`{shown}` took longer than {_SECONDS:g} s", "check the output of `dmesg`"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise VicinalError(f"`{shown}` failed ({said})", "check what `dmesg` says about the device")
    return done.stdout


def find_interface(name: str) -> dict[str, Any] | None:
    """Return the output of `ip -d -j link show` for an interface; None if it does not exist."""
    found: list[dict[str, Any]] = json.loads(ip(["-d", "-j", "link", "show"]))
    return next((each for each in found if each["ifname"] == name), None)


def check_bridge(name: str) -> None:
    """Raise VicinalError unless a bridge of this name exists and is up."""
    found = find_interface(name)
    if found is None or _kind(found) != "bridge":
        raise VicinalError(
            f"there is no bridge {name!r} on this host"
            if found is None
            else f"{name} is not a bridge",
            "name a bridge that `ip link show type bridge` shows, or have an administrator create "
            "one",
        )
    _check_up(found, "bridge")


def check_tap(name: str, *, free: bool) -> None:
    """Raise VicinalError unless a tap of this name exists, is up, and this user may open it.

    With `free`, the tap must not be open in another program.
    """
    user = os.geteuid()
    found = find_interface(name)
    data = {} if found is None else found.get("linkinfo", {}).get("info_data", {})
    if found is None or _kind(found) != "tun" or data.get("type") != "tap":
        what = f"there is no tap {name!r} on this host" if found is None else f"{name} is not a tap"
        raise VicinalError(
            what, f"create it as root: ip tuntap add {name} mode tap user {_user_name(user)}"
        )
    _check_up(found, "tap")
    if free and "LOWER_UP" in found["flags"]:
        raise VicinalError(f"the tap {name} is in use", "end the program that has it open")
    owner, group = data.get("user"), data.get("group")
    others = owner not in (None, _user_name(user), str(user))
    if user != 0 and (others or group not in (None, *_group_names())):
        raise VicinalError(
            f"only {owner or f'the group {group}'} may open the tap {name}",
            f"create it for this user as root: ip tuntap add {name} mode tap user "
            f"{_user_name(user)}",
        )
    if not os.access(_TUN, os.R_OK | os.W_OK):
        raise VicinalError(
            f"this user may not open {_TUN}", f"permit it as root: chmod 0666 {_TUN}"
        )


def _check_up(found: dict[str, Any], what: str) -> None:
    name = found["ifname"]
    if "UP" not in found["flags"]:
        raise VicinalError(f"the {what} {name} is down", f"set it up: ip link set {name} up")


def _kind(found: dict[str, Any]) -> str | None:
    kind: str | None = found.get("linkinfo", {}).get("info_kind")
    return kind


def _user_name(user: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_name
    return str(user)


def _group_names() -> list[str]:
    """Return the names and numbers of this process's groups, as `ip` may show them."""
    found = []
    for number in {os.getegid(), *os.getgroups()}:
        found.append(str(number))
        with suppress(KeyError):
            found.append(grp.getgrgid(number).gr_name)
    return found
