"""The permitted requests: operations, each with fields of fixed names and forms."""

import re
from typing import Any

from .system import RefusedError

Fields = dict[str, Any]
Form = re.Pattern[str] | range | type | list["Form"] | dict[str, "Form"]
"""The form of a value: a list is not empty and has items of one form; a dictionary has exactly
these keys."""

PROTOCOL = 6

AUDIT = "see docs/how-to/vfs.md"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
_GUID = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}")
_STATE = re.compile(r"auto|enable|disable")
_RATE = range(1 << 24)

_ONE: dict[str, Form] = {"vf": _ADDRESS, "owner": _OWNER}
_TO_ASSIGN: dict[str, Form] = {"vf": _ADDRESS, "fresh": bool, "settings": dict}
_TO_ASSIGN |= {"binding": re.compile("vfio-pci|native|")}
_OPERATIONS: dict[str, dict[str, Form]] = {
    "count": {"physical": _ADDRESS, "count": range(1024), "owner": _OWNER},
    "assign": {"vfs": [_TO_ASSIGN], "owner": _OWNER},
    "configure": {**_ONE, "settings": dict},
    "bind": {**_ONE, "binding": re.compile("vfio-pci|native")},
    "grant": {**_ONE, "user": range(1 << 32)},
    **dict.fromkeys(("recall", "reset"), _ONE),
    "release": {"vfs": [_ADDRESS], "owner": _OWNER},
}
ETHERNET: dict[str, Form] = {"mac": _MAC, "vlan": range(4095), "qos": range(8), "spoofchk": bool}
ETHERNET |= {"trust": bool, "state": _STATE, "min_tx_rate": _RATE, "max_tx_rate": _RATE}
RATES = ["min_tx_rate", "max_tx_rate"]
OUTSIDE = {*RATES, "state"}
"""Settings that a VF's own driver never reads."""
INFINIBAND: dict[str, Form] = {"node_guid": _GUID, "port_guid": _GUID, "policy": _STATE}
INFINIBAND |= {"pkey_index": range(128), "port": range(1, 3)}


def checked(request: object) -> tuple[str, Fields]:
    """Return the operation of a request, and its fields. Raises RefusedError for an invalid
    request."""
    if not isinstance(request, dict) or request.pop("protocol", None) != PROTOCOL:
        what = f"the privileged helper is of another version ({PROTOCOL}) than the command"
        raise RefusedError(what, f"install the helper again, {AUDIT}")
    operation = str(request.pop("operation", None))
    if operation not in _OPERATIONS:
        raise RefusedError("this is no request that the helper knows", AUDIT)
    check("a request", request, _OPERATIONS[operation])
    return operation, request


def check_settings(settings: Fields) -> None:
    """Raise RefusedError unless all settings are Ethernet's, or all are InfiniBand's."""
    forms = ETHERNET if is_ethernet(settings) else INFINIBAND
    if not set(settings) <= set(forms):
        raise RefusedError("these settings are not known together", AUDIT)
    for name, value in settings.items():
        check(name, value, forms[name])


def is_ethernet(settings: Fields) -> bool:
    """Whether all settings are those of Ethernet VFs."""
    return set(settings) <= set(ETHERNET)


def check(name: str, value: object, form: Form) -> None:
    """Raise RefusedError if a value does not have a form."""
    if isinstance(form, re.Pattern):
        good = isinstance(value, str) and form.fullmatch(value) is not None
    elif isinstance(form, range):
        good = isinstance(value, int) and not isinstance(value, bool) and value in form
    elif isinstance(form, list):
        good = isinstance(value, list) and bool(value)
        for each in value if isinstance(value, list) else ():
            check(name, each, form[0])
    elif isinstance(form, dict):
        good = isinstance(value, dict) and set(value) == set(form)
        for key in form if good else ():
            check(key, value[key], form[key])  # type: ignore[index]
    else:
        good = isinstance(value, form)
    if not good:
        raise RefusedError(f"{name} cannot be {str(value)[:60]!r}", AUDIT)
