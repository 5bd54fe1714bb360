"""Whole devices of the host's that nodes have, be they containers or virtual machines."""

from vicinal.cluster.plan.resource import Held
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.owners import check_device


def held_device(device: str | None) -> Held:
    """What a node has that has a whole device, by its PCI address."""
    return Held() if device is None else Held(frozenset({_thing(device)}))


def check_whole_device(functions: Functions, device: str | None, released: Held) -> None:
    """Raise VicinalError where a device cannot be given away; one that was `released` can."""
    if device is not None and _thing(device) not in released.things:
        check_device(functions, device)


def _thing(device: str) -> str:
    return f"device {device}"
