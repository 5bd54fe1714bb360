"""The kinds of guest images, one for each network of guests, and their Debian packages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class GuestNetwork(StrEnum):
    """How the guests of a pair reach each other."""

    VIRTIO = "virtio"
    """By TCP through virtio cards; one region for both guests."""
    VERBS = "verbs"
    """Also by RDMA, on a virtual function of an SR-IOV card; each guest plays a host with a region.

    QEMU emulates the card, and RDMA is Linux's own over Ethernet (Soft-RoCE).
    """


@dataclass(frozen=True)
class ImageKind:
    """An image's contents besides the MPI libraries, the programs and the provider."""

    directory: str
    """Its directory, below the directory of guests."""
    megabytes: int
    """Approximate size of its downloads."""
    packages: tuple[str, ...]
    kernel_package: str
    """A package that depends on the newest kernel of its kind."""
    kernel_from_backports: bool
    modules: Mapping[str, tuple[str, ...]]
    """Kernel modules in loading order, by the directory in the guest from which they are loaded."""
    vfs: bool = False
    """Whether guests can have SR-IOV VFs; the image then has their drivers."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Contents of additional files by their names."""


_PACKAGES = ("busybox-static", "openssh-client", "openssh-server", "udev", "zlib1g")
# Linux reports the power button as an input device (evdev).
_DEVICES = ("virtio_pci", "virtio_net", "virtio_console", "qemu_fw_cfg", "button", "evdev")
# A region may be a memory module, /dev/dax.
_MODULES = (*_DEVICES, "nfit", "nd_pmem", "dax_pmem", "device_dax")
_MODULES_DIRECTORY = "usr/lib/vicinal-modules"
# Loaded only if the region's device sends interrupts; see guest_doorbell.sh.
_DOORBELL = {"usr/lib/vicinal-doorbell/modules": ("vfio_pci", "vfio_iommu_type1")}

_KINDS = {
    GuestNetwork.VIRTIO: ImageKind(
        directory=".",
        megabytes=60,
        packages=_PACKAGES,
        kernel_package="linux-image-cloud-amd64",  # small, and built for virtual machines
        kernel_from_backports=False,
        modules={_MODULES_DIRECTORY: _MODULES, **_DOORBELL},
        vfs=True,
    ),
    # The cloud kernel has neither the card's drivers nor rdma_rxe. The release's own kernel has
    # them, but the backports' kernel is the tested one.
    GuestNetwork.VERBS: ImageKind(
        directory="verbs",
        megabytes=140,
        packages=(*_PACKAGES, "ibverbs-providers", "iproute2", "librdmacm1"),
        kernel_package="linux-image-amd64",
        kernel_from_backports=True,
        # guest_verbs.sh explains the three steps.
        modules={
            _MODULES_DIRECTORY: _MODULES,
            "usr/lib/vicinal-verbs/card": ("igb",),
            "usr/lib/vicinal-verbs/vf": ("igbvf",),
            # rdma_rxe requests the checksum by name, which no dependency shows.
            "usr/lib/vicinal-verbs/rdma": ("crc32_generic", "rdma_rxe", "rdma_ucm", "ib_uverbs"),
        },
        texts={"etc/libibverbs.d/rxe.driver": "driver rxe\n"},
    ),
}


def kind_of(network: GuestNetwork) -> ImageKind:
    """The kind of image for guests of a network."""
    return _KINDS[network]
