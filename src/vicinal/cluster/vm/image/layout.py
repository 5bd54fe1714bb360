"""Names and addresses on which a guest image and the host's programs agree."""

KERNEL_WORDS = ("console=ttyS0", "quiet", "panic=-1", "net.ifnames=0", "no_timer_check")
"""no_timer_check: a booting kernel counts timer ticks, and panics if a busy host delays them."""
USER = "mpi"
"""The unprivileged user of ranks."""
USER_ID = 1000
HOME = f"/home/{USER}"

CONTROL_PORT = "vicinal.control"
"""Name of the virtio port by which the host connects."""
IDENTITY_PORT = "vicinal.identity"
"""Name of the virtio port by which a guest that booted without an identity receives it."""
IDENTITY_FILE = "opt/vicinal/identity"
"""Name, in QEMU's firmware configuration, of the tar archive with a guest's own data: its name,
addresses, peers and keys.
"""
COMMANDS_FILE = "opt/vicinal/commands"
"""Name, likewise, of the cluster file's commands, which a guest runs before it is connected."""

GUEST_TASK = "/usr/lib/vicinal-task/run"
"""Program that runs a task of the host in the guest: guest/task.c."""

GUESTS_FILE = "/etc/vicinal/guests"
"""Names of all guests of a cluster, one a line, in the format of launchers' host files."""

LINK_NAME = "lan0"
"""Name of a node's interface in a network of the host; see guest_init.sh."""
PREFIX_BITS = 16
"""Prefix length of the network between guests: more addresses than guests of any host."""
READY_LINE = "vicinal-guest: ready"
USER_SPACE_LINE = "vicinal-guest: user space runs"


def vf_address(number: int) -> str:
    """IPv4 address of a guest's virtual function, if guests have SR-IOV cards."""
    return _address(1, number)


def guest_address(number: int) -> str:
    """IPv4 address of a guest in the network between guests; `number` counts from 0."""
    return _address(0, number)


def _address(network: int, number: int) -> str:
    return f"10.{network}.{number + 1 >> 8}.{number + 1 & 0xFF}"
