"""The devices by which a guest can have a region."""

from enum import StrEnum


class RegionDevice(StrEnum):
    """What QEMU shows a guest of the region's file."""

    IVSHMEM = "ivshmem-plain"
    """The memory of a PCI device; how it is cached is up to hypervisor and processor."""
    DOORBELL = "ivshmem-doorbell"
    """The same, and the device can interrupt: ranks that wait are woken from the other guest."""
    NVDIMM = "nvdimm"
    """A memory module, /dev/dax in the guest, which it maps write-back like its own memory."""

    @property
    def fits(self) -> dict[str, bool]:
        """What vicinal.region.create() has to be told."""
        return {"for_nvdimm" if self is RegionDevice.NVDIMM else "for_guests": True}
