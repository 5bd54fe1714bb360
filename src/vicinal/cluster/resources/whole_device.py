"""Whole PCI devices of the host that are assigned to containers or VMs."""

from vicinal.cluster.plan.resource import Held
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.owners import check_device


def held_device(device: str | None) -> Held:
    """Return what a node with a whole device occupies; `device` is a PCI address, None without."""
    return Held() if device is None else Held(frozenset({_thing(device)}))


def check_whole_device(vfs: Vfs, device: str | None, released: Held) -> None:
    """Raise VicinalError if a device cannot be assigned, unless another node has `released` it."""
    if device is not None and _thing(device) not in released.things:
        check_device(vfs, device)


def _thing(device: str) -> str:
    return f"device {device}"
