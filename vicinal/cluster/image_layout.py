"""What a guest image and those who use it have to agree on."""

USER = "mpi"
"""The ordinary user that ranks run as."""
USER_ID = 1000
HOME = f"/home/{USER}"

CONTROL_PORT = "vicinal.control"
"""Name of the virtio port by which the host gets in."""
KEYS_FILE = "opt/vicinal/keys"
"""Name in QEMU's firmware configuration of the tar archive with the guest's keys."""

MOST_GUESTS = 2
READY_LINE = "vicinal-guest: ready"
USER_SPACE_LINE = "vicinal-guest: user space runs"


def guest_name(number: int) -> str:
    """Host name of a guest."""
    return f"guest{number}"


def function_address(number: int) -> str:
    """IPv4 address of a guest's virtual function, where there are SR-IOV cards."""
    return f"10.0.1.{number + 1}"


def guest_address(number: int) -> str:
    """IPv4 address of a guest on the network between guests."""
    return f"10.0.0.{number + 1}"
