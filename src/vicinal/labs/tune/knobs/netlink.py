"""Settings of network interfaces through the kernel's generic netlink family `ethtool`.

Unlike the older ioctl, netlink omits settings that a driver lacks, sets one value at a time, and
gives reasons for refusals in words. pyroute2 makes and parses the messages; linux/ethtool_netlink.h
defines their contents.
"""

import errno
from collections.abc import Mapping
from typing import Any, Protocol

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.signals import signals_wait

WORDS = ("adaptive-rx", "adaptive-tx", "cqe-mode-tx", "cqe-mode-rx")
"""Parts of coalescing that are on (1) or off (0); all others are numbers."""

MODERATION = (
    *("rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq"),
    *("tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq"),
    *("stats-block-usecs", "adaptive-rx", "adaptive-tx"),
    *("pkt-rate-low", "rx-usecs-low", "rx-frame-low", "tx-usecs-low", "tx-frame-low"),
    *("pkt-rate-high", "rx-usecs-high", "rx-frame-high", "tx-usecs-high", "tx-frame-high"),
    *("sample-interval", "cqe-mode-tx", "cqe-mode-rx"),
    *("tx-aggr-max-bytes", "tx-aggr-max-frames", "tx-aggr-time-usecs"),
)
"""Names of `ethtool -C`, in the order of the kernel's attribute numbers, which begin with 2."""

QUEUES = (
    *("rx-max", "tx-max", "other-max", "combined-max"),
    *("rx", "tx", "other", "combined"),
)
"""Names of `ethtool -L`, in the same order."""

CHANNELS_GET, CHANNELS_SET, COALESCE_GET, COALESCE_SET = 17, 18, 19, 20

_REMEDIES = {
    errno.EPERM: "be root",
    errno.ENODEV: "see the list of `ip link`",
    errno.EOPNOTSUPP: "leave it out: the driver does not support this",
    errno.EBUSY: "find out what uses the interface",
}


class RefusedError(VicinalError):
    """The kernel refused a request; `number` is its error number."""

    def __init__(self, message: str, remedy: str, number: int) -> None:
        super().__init__(message, remedy)
        self.number = number

    @property
    def absent(self) -> bool:
        """Whether the driver lacks the setting, rather than refusing this value."""
        return self.number == errno.EOPNOTSUPP


class Ethtool(Protocol):
    """Settings of network interfaces; tests have an implementation without a kernel.

    Names are those of `ethtool -C` and `ethtool -L`. All methods raise RefusedError for a refusal.
    """

    def coalescing(self, interface: str) -> Mapping[str, int]:
        """The driver's coalescing settings; times in microseconds, words as in WORDS."""

    def set_coalescing(self, interface: str, name: str, value: int) -> None:
        """Set one coalescing setting, and leave the others."""

    def channels(self, interface: str) -> Mapping[str, int]:
        """The number of queues of each kind, and the maximum as `KIND-max`."""

    def set_channels(self, interface: str, name: str, value: int) -> None:
        """Set the number of queues of a kind; the driver may take the link down for a while."""


class KernelEthtool:
    """Settings of the network namespace of this process, from the kernel."""

    def coalescing(self, interface: str) -> Mapping[str, int]:
        return _ask(COALESCE_GET, interface, MODERATION)

    def set_coalescing(self, interface: str, name: str, value: int) -> None:
        _ask(COALESCE_SET, interface, MODERATION, {name: value})

    def channels(self, interface: str) -> Mapping[str, int]:
        return _ask(CHANNELS_GET, interface, QUEUES)

    def set_channels(self, interface: str, name: str, value: int) -> None:
        _ask(CHANNELS_SET, interface, QUEUES, {name: value})


def _ask(
    command: int, interface: str, names: tuple[str, ...], values: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Send one message about an interface; returns the numbers of the answer."""
    # Loaded here: the import takes a third of a second, and other commands do not need it.
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    message_type = _message_type(names)
    flags = NLM_F_REQUEST if values is None else NLM_F_REQUEST | NLM_F_ACK
    message = message_type()
    message["cmd"], message["version"] = command, 1
    header = {"attrs": [["ETHTOOL_A_HEADER_DEV_NAME", interface]]}
    message["attrs"] = [("header", header), *(values or {}).items()]
    try:
        # The socket has an event loop, which a signal in the middle would leave waiting forever.
        with signals_wait(), GenericNetlinkSocket(ext_ack=True) as socket:
            socket.bind("ethtool", message_type)
            answers = tuple(socket.nlm_request(message, msg_type=socket.prid, msg_flags=flags))
    except NetlinkError as error:
        raise _refused(error, interface, names, values) from error
    if values is not None:
        return {}
    return {name: value for name, value in answers[0]["attrs"] if name in names}


def _message_type(names: tuple[str, ...]) -> Any:
    from pyroute2.netlink import genlmsg
    from pyroute2.netlink.generic.ethtool import ethtoolheader

    forms = [(name, "uint8" if name in WORDS else "uint32") for name in names]
    fields = {
        "nla_map": (("unspec", "none"), ("header", "ethtoolheader"), *forms),
        "ethtoolheader": ethtoolheader,
        "__module__": __name__,
    }
    return type("ethtool_message", (genlmsg,), fields)


def _refused(
    error: Any, interface: str, names: tuple[str, ...], values: Mapping[str, int] | None
) -> RefusedError:
    number = int(error.code)
    said = describe_os_error(OSError(number, str(error.args[1])))
    if number == errno.ENODEV:
        return RefusedError(f"there is no interface {interface}", _REMEDIES[number], number)
    remedy = _REMEDIES.get(number, "choose another value, or leave it out")
    if number == errno.EOPNOTSUPP:
        what = "interrupt moderation" if names is MODERATION else "queues"
        return RefusedError(
            f"the driver of {interface} has no {what} that can be set", _REMEDIES[number], number
        )
    if values is None:
        return RefusedError(f"{interface} cannot be asked: {said}", remedy, number)
    wanted = ", ".join(f"{name} {value}" for name, value in values.items())
    return RefusedError(f"the driver of {interface} refuses {wanted}: {said}", remedy, number)
