"""The devices that can give a guest a region."""

from enum import StrEnum


class RegionDevice(StrEnum):
    """The QEMU device that shows the region's file to a guest."""

    IVSHMEM = "ivshmem-plain"
    """The memory of a PCI device. Hypervisor and processor decide how it is cached."""
    DOORBELL = "ivshmem-doorbell"
    """The same with interrupts: a rank can wake waiting ranks in another guest."""
    NVDIMM = "nvdimm"
    """A memory module: /dev/dax in the guest, which maps it write-back like its own memory."""

    @property
    def fits(self) -> dict[str, bool]:
        """The arguments of vicinal.region.create() for this device."""
        return {"for_nvdimm" if self is RegionDevice.NVDIMM else "for_guests": True}
