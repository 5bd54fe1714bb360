"""The kinds of guest images, and what each takes from Debian: one for each network of guests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class GuestNetwork(StrEnum):
    """How the guests of a pair reach each other."""

    VIRTIO = "virtio"
    """By TCP, through virtio cards; one region for both."""
    VERBS = "verbs"
    """By RDMA besides, on a virtual function of an SR-IOV card; each is a host with its own region.

    The card is one that QEMU emulates, and RDMA is Linux's own over Ethernet (Soft-RoCE).
    """


@dataclass(frozen=True)
class ImageKind:
    """What is in an image beside the MPI libraries, the programs and the provider."""

    directory: str
    """Where it is kept, below the directory of guests."""
    megabytes: int
    """What is fetched for it, about."""
    packages: tuple[str, ...]
    kernel_package: str
    """A package that depends on the newest kernel of its kind."""
    kernel_from_backports: bool
    modules: Mapping[str, tuple[str, ...]]
    """Kernel modules by the directory in the guest from which they are loaded, in order."""
    functions: bool = False
    """Whether guests can be given SR-IOV functions: what drivers the kernel has for them."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files by their names."""


_PACKAGES = ("busybox-static", "openssh-client", "openssh-server", "udev", "zlib1g")
# The power button is an input device.
_DEVICES = ("virtio_pci", "virtio_net", "virtio_console", "qemu_fw_cfg", "button", "evdev")
# A region may be a memory module's: /dev/dax.
_MODULES = (*_DEVICES, "nfit", "nd_pmem", "dax_pmem", "device_dax")
_MODULES_DIRECTORY = "usr/lib/vicinal-modules"
# Loaded only where the region's device can interrupt: guest_doorbell.sh.
_DOORBELL = {"usr/lib/vicinal-doorbell/modules": ("vfio_pci", "vfio_iommu_type1")}

_KINDS = {
    GuestNetwork.VIRTIO: ImageKind(
        directory=".",
        megabytes=60,
        packages=_PACKAGES,
        kernel_package="linux-image-cloud-amd64",  # small, and made for virtual machines
        kernel_from_backports=False,
        modules={_MODULES_DIRECTORY: _MODULES, **_DOORBELL},
        functions=True,
    ),
    # The cloud kernel has neither the card's drivers nor rdma_rxe. The release's own kernel has
    # them, but what was tried is that of the backports.
    GuestNetwork.VERBS: ImageKind(
        directory="verbs",
        megabytes=140,
        packages=(*_PACKAGES, "ibverbs-providers", "iproute2", "librdmacm1"),
        kernel_package="linux-image-amd64",
        kernel_from_backports=True,
        # guest_verbs.sh says why they are loaded in three steps.
        modules={
            _MODULES_DIRECTORY: _MODULES,
            "usr/lib/vicinal-verbs/card": ("igb",),
            "usr/lib/vicinal-verbs/function": ("igbvf",),
            # rdma_rxe asks for the checksum by its name, which no dependency shows.
            "usr/lib/vicinal-verbs/rdma": ("crc32_generic", "rdma_rxe", "rdma_ucm", "ib_uverbs"),
        },
        texts={"etc/libibverbs.d/rxe.driver": "driver rxe\n"},
    ),
}


def kind_of(network: GuestNetwork) -> ImageKind:
    """The image that guests of a network boot."""
    return _KINDS[network]
