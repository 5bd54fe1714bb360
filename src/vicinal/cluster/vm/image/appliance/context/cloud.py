"""A context in cloud-init's terms: a network, an instance, a configuration.

If OpenNebula writes an empty address, cloud-init's own reader derives one from the NIC's hardware
address, even for NICs with DHCP. It does not know the configuration method of a NIC
(`ETHn_METHOD`), passwords and users, and does not distinguish VMs.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vicinal.cluster.vm.image.appliance.context.reading import (
    ContextError,
    decoded,
    says_no,
    says_yes,
)

DEFAULT_USER = "debian"
"""The user whom the appliance's cloud-init creates if the context names none."""

SECRETS = tuple(
    f"{name}{encoding}"
    for name in ("PASSWORD", "CRYPTED_PASSWORD", "VICINAL_SSH_KEY", "START_SCRIPT")
    for encoding in ("", "_BASE64")
)
"""Variables that cloud-init must not show to all users of the VM."""

_NIC = re.compile(r"((?:ETH|PCI)\d+)_MAC")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_LIKELY_HASH = re.compile(r"\$\w+\$\S+")


def network_config(
    context: Mapping[str, str], names: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, Any] | None:
    """cloud-init's network configuration, version 2, of the NICs in a context; None without NICs.

    `names` has the VM's interfaces by hardware address in lower case. `say` receives invalid
    values; such a NIC is configured by DHCP, and so is a NIC without an address.
    """
    ethernets = {}
    for nic in sorted(match[1] for match in map(_NIC.fullmatch, context) if match):
        name = names.get(context[f"{nic}_MAC"].strip().lower())
        if name is not None:
            fields = {
                key.removeprefix(f"{nic}_"): value.strip()
                for key, value in context.items()
                if key.startswith(f"{nic}_")
            }
            ethernets[name] = _interface(nic, fields, context, say)
    return {"version": 2, "ethernets": ethernets} if ethernets else None


def _interface(
    nic: str, fields: Mapping[str, str], context: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, Any]:
    method = fields.get("METHOD", "").lower() or "static"
    # As in OpenNebula's packages, IPv6 defaults to the method of IPv4.
    method6 = fields.get("IP6_METHOD", "").lower() or method
    found: dict[str, Any] = {}
    addresses: list[str] = []
    try:
        if method == "static" and fields.get("IP"):
            addresses.append(_address(fields["IP"], fields.get("MASK") or "255.255.255.0"))
            if fields.get("GATEWAY"):
                found["gateway4"] = str(ipaddress.IPv4Address(fields["GATEWAY"]))
        if method6 == "static":
            length = fields.get("IP6_PREFIX_LENGTH") or "64"
            addresses += [_address(fields[k], length) for k in ("IP6", "IP6_ULA") if fields.get(k)]
            gateway = fields.get("IP6_GATEWAY") or fields.get("GATEWAY6")
            if gateway and addresses:
                found["gateway6"] = str(ipaddress.IPv6Address(gateway))
        addresses += _aliases(fields)
        routes = _routes(fields.get("ROUTES", ""))
        if fields.get("MTU"):
            found["mtu"] = int(fields["MTU"])
    except ValueError as error:
        say(f"{nic}: {error}: it is configured by DHCP instead")
        return {"dhcp4": True}
    for known, which in ((method, "METHOD"), (method6, "IP6_METHOD")):
        if known not in ("static", "dhcp", "skip", "auto", "disable"):
            say(f"{nic}_{which} is '{known}', which is not known: use static, dhcp or skip")
    if addresses:
        found["addresses"] = addresses
    if routes:
        found["routes"] = routes
    # If a NIC has no address, and no method that forbids one, the network has a DHCP server.
    found["dhcp4"] = method == "dhcp" or (method != "skip" and not addresses)
    found["dhcp6"] = method6 == "dhcp"
    servers = [*fields.get("DNS", "").split(), *context.get("DNS", "").split()]
    names = fields.get("SEARCH_DOMAIN", "").split()
    if servers or names:
        found["nameservers"] = {"addresses": servers, "search": names}
    return found


def _address(address: str, mask: str) -> str:
    return str(ipaddress.ip_interface(f"{address}/{mask}"))


def _aliases(fields: Mapping[str, str]) -> list[str]:
    """Further addresses of a NIC, except those that a device outside of the VM has."""
    found = []
    for match in sorted(m[1] for m in (re.fullmatch(r"(ALIAS\d+)_IP", k) for k in fields) if m):
        alone = says_yes(fields.get(f"{match}_EXTERNAL", "")) or fields.get(f"{match}_DETACH")
        if fields[f"{match}_IP"] and not alone:
            mask = fields.get(f"{match}_MASK") or "255.255.255.0"
            found.append(_address(fields[f"{match}_IP"], mask))
    return found


def _routes(text: str) -> list[dict[str, str]]:
    """Parse routes of the form `10.1.0.0/16 via 10.0.0.1, ...`. Raises ValueError."""
    found = []
    for route in filter(None, map(str.strip, text.split(","))):
        match route.split():
            case [network, "via", gateway]:
                to, via = ipaddress.ip_network(network), ipaddress.ip_address(gateway)
                found.append({"to": str(to), "via": str(via)})
            case _:
                raise ValueError(f"'{route}' is not a route of the form NETWORK via ADDRESS")
    return found


def instance_id(context: Mapping[str, str]) -> str:
    """An identifier of the VM, so that cloud-init sets up the disk of another VM anew.

    It is the VM's number if the context has it, otherwise the hardware address of its first NIC.
    """
    address = min((key for key in context if _NIC.fullmatch(key)), default="")
    return f"one-{context.get('VMID') or context.get(address) or 'vm'}".lower()


def user_of(context: Mapping[str, str]) -> str:
    """The user whom cloud-init creates. Nobody logs in as root."""
    name = context.get("USERNAME", "").strip()
    return name if name != "root" and _USER.fullmatch(name) else DEFAULT_USER


@dataclass(frozen=True)
class Password:
    """The user's password in a context."""

    text: str
    crypted: bool


def password_of(context: Mapping[str, str], say: Callable[[str], None]) -> Password | None:
    """The context's password, or None; `say` receives what is wrong with it."""
    try:
        crypted, plain = decoded(context, "CRYPTED_PASSWORD"), decoded(context, "PASSWORD")
    except ContextError as error:
        say(f"{error}: there is no password")
        return None
    if crypted and not _LIKELY_HASH.fullmatch(crypted):
        say("CRYPTED_PASSWORD is not a result of crypt(): there is no password")
        return None
    return Password(crypted or plain, bool(crypted)) if crypted or plain else None


def cloud_config(context: Mapping[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    """cloud-init's configuration: the user, the password, the disk, the time zone."""
    found: dict[str, Any] = {}
    user = user_of(context)
    if context.get("USERNAME", "").strip() not in ("", user):
        say(f"USERNAME is not a user who may log in: the user is {user}")
    if user != DEFAULT_USER:
        found["user"] = {"name": user}
    if password := password_of(context, say):
        kind = "hash" if password.crypted else "text"
        secret = {"name": user, "password": password.text, "type": kind}
        found["chpasswd"] = {"expire": False, "users": [secret]}
    if says_no(context.get("GROW_ROOTFS", "")):
        found["growpart"] = {"mode": "off"}
        found["resize_rootfs"] = False
    if context.get("TIMEZONE"):
        found["timezone"] = context["TIMEZONE"]
    return found
