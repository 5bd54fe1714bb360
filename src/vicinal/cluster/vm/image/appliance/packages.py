"""What the appliance takes from Debian. Release and mirrors are those of this host's apt."""

PACKAGES = (
    # A system that boots, has a network and lets its users in.
    "dbus",
    "initramfs-tools",
    # Names that machines of a network tell each other, with addresses of a link.
    "libnss-resolve",
    "libpam-systemd",
    # Not the cloud kernel, which has neither RDMA over Ethernet nor the drivers of many functions.
    "linux-image-amd64",
    "openssh-server",
    "sudo",
    "systemd-resolved",
    "systemd-sysv",
    "systemd-timesyncd",
    "udev",
    "zstd",
    # What clouds tell a machine: its name, keys, addresses, the size of its disk.
    "ca-certificates",
    "cloud-guest-utils",
    "cloud-init",
    "e2fsprogs",
    # MPI, RDMA and what the provider needs.
    "ibverbs-providers",
    "ibverbs-utils",
    "libfabric-bin",
    "libfabric1",
    "openmpi-bin",
    "openssh-client",
    "rdma-core",
    # Vicinal's command, and looking around.
    "ethtool",
    "iproute2",
    "iputils-ping",
    "less",
    "pciutils",
    "procps",
    "python3",
    "python3-numpy",
)

KERNEL_PARTS_LEFT_OUT = (
    "drivers/gpu",
    "drivers/isdn",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/staging",
    "sound",
)
"""Drivers that no virtual machine for MPI needs: more than half of the kernel package."""

FILES_LEFT_OUT = (
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    *(f"/lib/modules/*/kernel/{part}/*" for part in KERNEL_PARTS_LEFT_OUT),
    *(f"/usr/lib/modules/*/kernel/{part}/*" for part in KERNEL_PARTS_LEFT_OUT),
)

FILES_KEPT = ("/usr/share/doc/*/copyright",)
"""Of those that are left out: licenses ask for them."""
