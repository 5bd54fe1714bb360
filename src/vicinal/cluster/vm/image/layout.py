"""What a guest image and those who use it have to agree on."""

KERNEL_WORDS = ("console=ttyS0", "quiet", "panic=-1", "net.ifnames=0", "no_timer_check")
"""The last, since a busy host is late with the ticks that a kernel counts at first, and panics."""
USER = "mpi"
"""The ordinary user that ranks run as."""
USER_ID = 1000
HOME = f"/home/{USER}"

CONTROL_PORT = "vicinal.control"
"""Name of the virtio port by which the host gets in."""
IDENTITY_PORT = "vicinal.identity"
"""Likewise of that by which a guest that was not told at its boot hears who it is."""
IDENTITY_FILE = "opt/vicinal/identity"
"""Name in QEMU's firmware configuration of the tar archive with what one guest alone has:
its name, its addresses, its neighbours and its keys."""
COMMANDS_FILE = "opt/vicinal/commands"
"""Likewise the commands of the cluster's file that a guest runs before anybody gets in."""

GUEST_TASK = "/usr/lib/vicinal-task/run"
"""What runs a program for a task of the host's: guest/task.c."""

GUESTS_FILE = "/etc/vicinal/guests"
"""Names of all guests of a cluster, a line each, as launchers read files of hosts."""

LINK_NAME = "lan0"
"""A node's interface in a network of the host's: guest_init.sh."""
PREFIX_BITS = 16
"""Of the network between guests: room for more than run on any host."""
READY_LINE = "vicinal-guest: ready"
USER_SPACE_LINE = "vicinal-guest: user space runs"


def function_address(number: int) -> str:
    """IPv4 address of a guest's virtual function, where there are SR-IOV cards."""
    return _address(1, number)


def guest_address(number: int) -> str:
    """IPv4 address of a guest on the network between guests; numbers begin at 0."""
    return _address(0, number)


def _address(network: int, number: int) -> str:
    return f"10.{network}.{number + 1 >> 8}.{number + 1 & 0xFF}"
