"""Debian packages of the appliance. Release and mirrors are those of this host's apt."""

PACKAGES = (
    # A system that boots, has a network and accepts logins.
    "dbus",
    "initramfs-tools",
    # Name resolution between VMs of one network (LLMNR), with link addresses.
    "libnss-resolve",
    "libpam-systemd",
    # Not the cloud kernel, which lacks RDMA over Ethernet and the drivers of many VFs.
    "linux-image-amd64",
    "openssh-server",
    "sudo",
    "systemd-resolved",
    "systemd-sysv",
    "systemd-timesyncd",
    "udev",
    "zstd",
    # What clouds configure: the name, keys, addresses, the size of the disk.
    "ca-certificates",
    "cloud-guest-utils",
    "cloud-init",
    "e2fsprogs",
    # MPI, RDMA and the provider's requirements.
    "ibverbs-providers",
    "ibverbs-utils",
    "libfabric-bin",
    "libfabric1",
    "openmpi-bin",
    "openssh-client",
    "rdma-core",
    # Vicinal's command, and tools to examine the VM.
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
"""Exceptions from FILES_LEFT_OUT, because licenses require them."""
