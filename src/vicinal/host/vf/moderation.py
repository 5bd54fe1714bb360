"""Interrupt moderation: how long a card collects messages before it interrupts.

Drivers differ in the settings that they accept, and some accept a setting without any effect. So
each setting is made separately, a refusal names the setting, and the values are read back.
"""

import re
import subprocess
from collections.abc import Mapping

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.privileged.system import VFIO, Host, RefusedError
from vicinal.host.vf.sysfs import PhysicalFunction, find_card, find_vf

ADAPTIVE = ("adaptive-rx", "adaptive-tx")
SETTINGS = (*ADAPTIVE, "rx-usecs", "rx-frames", "tx-usecs", "tx-frames")
"""Settings of `ethtool -C`: the first two are on or off, the others are microseconds or
messages."""

_LINE = re.compile(r"^([a-z-]+):\s*(\S+)", re.MULTILINE)
_ADAPTIVE_LINE = re.compile(r"^Adaptive RX:\s*(\S+)\s+TX:\s*(\S+)", re.MULTILINE)
_ABSENT = "n/a"


def interface_of(vfs: Vfs, name: str) -> str:
    """Return the interface of a card or VF, by any of its names; also of a card without
    SR-IOV.

    Raises VicinalError if the device has no interface in this network namespace.
    """
    if (vfs.host.sysfs / "class/net" / name).exists():
        return name
    cards = vfs.cards()
    found = find_vf(cards, name) or find_card(cards, name)
    if found.interfaces:
        return found.interfaces[0]
    if found.driver == VFIO:
        why = "it is bound to vfio-pci: set its moderation in the guest"
    elif isinstance(found, PhysicalFunction):
        why = "its driver is not loaded, or it is in a container"
    else:
        why = found.use or "no driver is bound to it"
    raise VicinalError(f"{name} has no interface here ({why})", "see `vicinal vf list`")


def read_moderation(host: Host, interface: str) -> dict[str, str]:
    """Return the settings of the interface's driver, by their names in SETTINGS."""
    text = _ethtool(host, "-c", interface)
    found = dict(_LINE.findall(text))
    if adaptive := _ADAPTIVE_LINE.search(text):
        found |= dict(zip(ADAPTIVE, adaptive.groups(), strict=True))
    return {name: found[name] for name in SETTINGS if found.get(name, _ABSENT) != _ABSENT}


def set_moderation(host: Host, interface: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Change settings, and return the interface's settings afterwards.

    Raises VicinalError for a setting that the driver refuses, or accepts without effect; settings
    that were changed before are then restored.
    """
    before = read_moderation(host, interface)
    done: list[str] = []
    try:
        for name, value in wanted.items():
            if before.get(name) != value:  # ethtool reports an error if nothing changes
                _set(host, interface, name, value, before)
                done.append(name)
        now = read_moderation(host, interface)
        for name, value in wanted.items():
            if now.get(name) != value:
                raise VicinalError(
                    f"{interface} accepted {name} {value} without an error, and has "
                    f"{now.get(name, 'none')}",
                    "its driver does not support this setting: leave it out",
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
            f"use only settings of this driver ({has}), or choose another value",
        ) from error


def _ethtool(host: Host, *arguments: str) -> str:
    try:
        return host.run("ethtool", *arguments)
    except RefusedError as error:
        raise VicinalError(error.args[0], "its driver may have no interrupt moderation") from error
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"`ethtool {' '.join(arguments)}` took longer than {error.timeout:g} s",
            "read the card's messages in `dmesg`",
        ) from error
