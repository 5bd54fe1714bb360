"""The checks of a host: each is a small function that takes a Host and returns findings.

CHECKS holds all of them in the order of the report. Checks that need guests, MPI libraries or
profiles are in vicinal/cluster, vicinal/mpi and vicinal/labs; the command adds them.
"""

from vicinal.host.checks.cards import INFINIBAND, IOMMU, SRIOV
from vicinal.host.checks.isolation import CGROUPS, CONTAINERS, CROSS_MEMORY, LIMITS, NAMESPACES
from vicinal.host.checks.processor_and_memory import HUGE_PAGES, NUMA, PROCESSOR, SHARED_MEMORY
from vicinal.host.checks.vms import IVSHMEM, LIBVIRT, LOCKDOWN, QEMU
from vicinal.host.finding import Check

CHECKS: tuple[Check, ...] = (
    PROCESSOR,
    NUMA,
    HUGE_PAGES,
    SHARED_MEMORY,
    QEMU,
    LIBVIRT,
    IOMMU,
    SRIOV,
    INFINIBAND,
    IVSHMEM,
    LOCKDOWN,
    NAMESPACES,
    CONTAINERS,
    CGROUPS,
    LIMITS,
    CROSS_MEMORY,
)
