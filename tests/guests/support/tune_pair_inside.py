"""The first steps of both guests of test_tune_moderation.py, as root: each gets a virtual function
of its igb card with an address, and Soft-RoCE on the VF; the cards are joined by a wire.
"""

import os
import subprocess
import time
import tty
from pathlib import Path
from typing import TextIO

NEAR, FAR = 1, 2
PORT = 9000
BULK_PORT = 9001
ANEW_PORT = 9004
RDMA = "rxe0"
QP_TIMEOUT = ("-u", "18")
"""A second until a packet is sent again, instead of the usual 67 ms. On a busy host answers are
late, and a queue pair that receives everything twice may never finish.
"""
RDMA_LATENCY = (
    *("ib_read_lat", "-d", RDMA, "-F", "-p", "9002", "-s", "64", "-n", "40", "-o", "1"),
    *QP_TIMEOUT,
)
# Small ones, one at a time: several overrun the card's ring if interrupts are late.
RDMA_BULK = (
    *("ib_read_bw", "-d", RDMA, "-F", "-p", "9003", "-s", "4096", "-n", "60"),
    *("-o", "1", "-t", "1", "--report_gbits", *QP_TIMEOUT),
)
BURST = 12
SMALL = 64


def address(number: int) -> str:
    """Of a guest's VF."""
    return f"10.9.0.{number}"


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def names() -> dict[str, str]:
    """Interfaces by their drivers."""
    found = {}
    for interface in Path("/sys/class/net").iterdir():
        driver = interface / "device/driver"
        if driver.exists():
            found[driver.resolve().name] = interface.name
    return found


def connect(number: int) -> str:
    """Set up the VF on the wire; returns its interface."""
    card = names()["igb"]
    device = Path("/sys/class/net", card, "device")
    run(f"ip link set {card} up")
    # Its driver reads the hardware address once, so it is loaded after the address was set.
    autoprobe = device / "sriov_drivers_autoprobe"
    autoprobe.write_text("0")
    (device / "sriov_numvfs").write_text("1")
    run(f"ip link set {card} vf 0 mac 52:54:00:00:02:{number:02x}")
    autoprobe.write_text("1")
    Path("/sys/bus/pci/drivers_probe").write_text((device / "virtfn0").resolve().name)
    vf = names()["igbvf"]
    run(f"ip addr add {address(number)}/24 dev {vf}")
    run(f"ip link set {vf} up")
    drivers = Path("/etc/libibverbs.d")
    drivers.mkdir()
    (drivers / "rxe.driver").write_text("driver rxe\n")
    run(f"rdma link add {RDMA} type rxe netdev {vf}")
    state = Path(f"/sys/class/infiniband/{RDMA}/ports/1/state")
    while "ACTIVE" not in state.read_text():
        time.sleep(0.1)
    return vf


def channel() -> tuple[TextIO, TextIO]:
    """Lines from the test outside, and to it."""
    wire = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
    tty.setraw(wire)
    return os.fdopen(wire, "r"), os.fdopen(os.dup(wire), "w")
