"""How long a card gathers messages before it interrupts: read, set, and read back.

Drivers differ in what they take, and some take it and do nothing. So each setting is asked for by
itself, what a driver refuses is named, and what it does not do is noticed.
"""

import re
import subprocess
from collections.abc import Mapping

from vicinal.base.errors import VicinalError
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.privileged.system import VFIO, Host, RefusedError
from vicinal.host.functions.sysfs import PhysicalFunction, find_card, find_function

ADAPTIVE = ("adaptive-rx", "adaptive-tx")
SETTINGS = (*ADAPTIVE, "rx-usecs", "rx-frames", "tx-usecs", "tx-frames")
"""Settings of `ethtool -C`: on or off the first, numbers the others; microseconds or messages."""

_LINE = re.compile(r"^([a-z-]+):\s*(\S+)", re.MULTILINE)
_ADAPTIVE_LINE = re.compile(r"^Adaptive RX:\s*(\S+)\s+TX:\s*(\S+)", re.MULTILINE)
_ABSENT = "n/a"


def interface_of(functions: Functions, name: str) -> str:
    """The interface of a card or function, by any of its names, or of another card by its own.

    Raises VicinalError where there is none here.
    """
    if (functions.host.sysfs / "class/net" / name).exists():
        return name
    cards = functions.cards()
    found = find_function(cards, name) or find_card(cards, name)
    if found.interfaces:
        return found.interfaces[0]
    if found.driver == VFIO:
        why = "vfio-pci has it: its moderation is set in the guest that has it"
    elif isinstance(found, PhysicalFunction):
        why = "its driver is not loaded, or a container has it"
    else:
        why = found.use or "no driver has it"
    raise VicinalError(f"{name} has no interface here ({why})", "see `vicinal functions list`")


def read_moderation(host: Host, interface: str) -> dict[str, str]:
    """The settings that the interface's driver has, by their names in SETTINGS."""
    text = _ethtool(host, "-c", interface)
    found = dict(_LINE.findall(text))
    if adaptive := _ADAPTIVE_LINE.search(text):
        found |= dict(zip(ADAPTIVE, adaptive.groups(), strict=True))
    return {name: found[name] for name in SETTINGS if found.get(name, _ABSENT) != _ABSENT}


def set_moderation(host: Host, interface: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Set what is wanted, and return what the interface has then.

    Raises VicinalError for what its driver refuses, or takes and does not do; what was set before
    that is set back.
    """
    before = read_moderation(host, interface)
    done: list[str] = []
    try:
        for name, value in wanted.items():
            if before.get(name) != value:  # ethtool calls it an error to change nothing
                _set(host, interface, name, value, before)
                done.append(name)
        now = read_moderation(host, interface)
        for name, value in wanted.items():
            if now.get(name) != value:
                raise VicinalError(
                    f"{interface} took {name} {value} without an error, and has "
                    f"{now.get(name, 'none')}",
                    "its driver does not do this: leave it out",
                )
    except VicinalError:
        for name in reversed(done):
            if name in before:
                _ethtool(host, "-C", interface, name, before[name])
        raise
    return now


def _set(host: Host, interface: str, name: str, value: str, before: Mapping[str, str]) -> None:
    try:
        _ethtool(host, "-C", interface, name, value)
    except VicinalError as error:
        has = ", ".join(before) or "none"
        raise VicinalError(
            f"the driver of {interface} refuses {name} {value}: {error.message}",
            f"it has {has}; leave others out, or choose another value",
        ) from error


def _ethtool(host: Host, *arguments: str) -> str:
    try:
        return host.run("ethtool", *arguments)
    except RefusedError as error:
        raise VicinalError(error.args[0], "its driver may have no interrupt moderation") from error
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"`ethtool {' '.join(arguments)}` took longer than {error.timeout:g} s",
            "see what `dmesg` says of the card",
        ) from error
