"""Adaptive moderation of an RDMA device: for the kernel's own completion queues, such as NFS's.

Programs moderate their own completion queues (ibv_modify_cq), which this knob does not reach.
"""

import json

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knob import Value
from vicinal.labs.tune.knobs.host import TunedHost, check_word

PART = "adaptive-moderation"
_WORDS = {"off": 0, "on": 1}


def rdma_devices(host: TunedHost) -> list[str]:
    """Names of this host's RDMA devices."""
    return host.system.names("sys/class/infiniband")


class RdmaModerationKnob:
    """Whether the kernel adapts the moderation of a device's queues; set by the program rdma."""

    gentle = True
    interface = ""
    part = PART
    unit = ""
    values = ("off", "on")
    reaches = "completion queues of the kernel made after it; not those of user verbs"

    def __init__(self, host: TunedHost, device: str) -> None:
        self._host = host
        self._device = device
        self.name = f"{device}/{PART}"

    def check(self, value: Value) -> Value:
        """The value. Raises VicinalError unless it is on or off."""
        check_word(self.name, value, _WORDS)
        return value

    def read(self) -> Value:
        text = self._run("-j", "-d", "dev", "show", self._device)
        try:
            (found,) = json.loads(text)
            has = found[PART]
        except (ValueError, KeyError, TypeError) as error:
            raise VicinalError(
                f"`rdma` does not report {PART} of {self._device}",
                "install a newer iproute2",
            ) from error
        return "on" if has in (True, "on") else "off"

    def write(self, value: Value) -> None:
        self.check(value)
        self._run("dev", "set", self._device, PART, str(value))

    def _run(self, *arguments: str) -> str:
        answer = self._host.system.try_program("rdma", *arguments)
        if not answer.worked:
            raise VicinalError(
                f"{self._device}: {answer.complaint}",
                "be root, and install iproute2; the driver may not support this",
            )
        return answer.output
