"""The checks of a host: each is a small function that takes a Host and returns findings.

CHECKS holds all of them in the order of the report. Checks that need guests, MPI libraries or
profiles are in vicinal/cluster, vicinal/mpi and vicinal/labs; the command adds them.
"""

from vicinal.host.checks.cgroups import CGROUPS
from vicinal.host.checks.containers import CONTAINERS
from vicinal.host.checks.cross_memory import CROSS_MEMORY
from vicinal.host.checks.hugepages import HUGE_PAGES
from vicinal.host.checks.infiniband import INFINIBAND
from vicinal.host.checks.iommu import IOMMU
from vicinal.host.checks.ivshmem import IVSHMEM
from vicinal.host.checks.libvirt import LIBVIRT
from vicinal.host.checks.limits import LIMITS
from vicinal.host.checks.lockdown import LOCKDOWN
from vicinal.host.checks.namespaces import NAMESPACES
from vicinal.host.checks.numa import NUMA
from vicinal.host.checks.processor import PROCESSOR
from vicinal.host.checks.qemu import QEMU
from vicinal.host.checks.shared_memory import SHARED_MEMORY
from vicinal.host.checks.sriov import SRIOV
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
