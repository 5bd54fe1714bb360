"""What happens in the guest of test_tune_moderation.py, as root: it answers lines of JSON.

Its igb card and a virtio-net are on one wire; the virtio-net is in a network namespace of its own,
where a process answers each packet with a burst of small ones. So the card's interrupts are those
of packets that arrive.
"""

import json
import os
import socket
import subprocess
import sys
import time
import tty
from pathlib import Path
from statistics import median

from vicinal.errors import VicinalError
from vicinal.tune.evidence import add_work, read_counters
from vicinal.tune.knobs.machine import Machine
from vicinal.tune.settings.keeper import Keeper, Work
from vicinal.tune.settings.place import sole_command

STATE = Path("/run/tune")
HERE, THERE = "10.9.0.1", "10.9.0.2"
PORT = 9000
BURST = 12
ROUNDS = 60
LOST_SECONDS = 2.0
BULK_SECONDS = 0.5
FAR = f"""
import socket
import threading
bulk = socket.create_server(("{THERE}", {PORT}))
def send():
    while True:
        near, _ = bulk.accept()
        try:
            while True:
                near.sendall(bytes(1 << 16))
        except OSError:
            near.close()
threading.Thread(target=send, daemon=True).start()
far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
far.bind(("{THERE}", {PORT}))
print("there", flush=True)
while True:
    packet, sender = far.recvfrom(2048)
    for _ in range({BURST}):
        far.sendto(packet, sender)
"""


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def names() -> dict[str, str]:
    """Interfaces by their drivers."""
    found = {}
    for place in Path("/sys/class/net").iterdir():
        driver = place / "device/driver"
        if driver.exists():
            found[driver.resolve().name] = place.name
    return found


def connect() -> str:
    """Have both ends on the wire; the card's name."""
    found = names()
    card, far = found["igb"], found["virtio_net"]
    run("ip netns add far")
    run(f"ip link set {far} netns far")
    run(f"ip netns exec far ip addr add {THERE}/24 dev {far}")
    run(f"ip netns exec far ip link set {far} up")
    run(f"ip addr add {HERE}/24 dev {card}")
    run(f"ip link set {card} up")
    process = subprocess.Popen(
        ["ip", "netns", "exec", "far", sys.executable, "-c", FAR], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return card


def exchange(near: socket.socket, number: int) -> int:
    """One packet there and a burst back; the nanoseconds that it took, or -1 if some were lost."""
    began = time.monotonic_ns()
    near.sendto(number.to_bytes(8, "little") * 8, (THERE, PORT))
    left = BURST
    while left:
        try:
            packet = near.recv(2048)
        except TimeoutError:
            return -1
        left -= packet[:8] == number.to_bytes(8, "little")
    return time.monotonic_ns() - began


def stream() -> tuple[int, float]:
    """Bytes that came over TCP, and the seconds that it took; the first ones do not count."""
    with socket.create_connection((THERE, PORT), timeout=LOST_SECONDS) as near:
        room = memoryview(bytearray(1 << 18))
        for seconds in (BULK_SECONDS / 2, BULK_SECONDS):
            began, read = time.monotonic(), 0
            while time.monotonic() < began + seconds:
                read += near.recv_into(room)
        return read, time.monotonic() - began


def measure_bulk() -> dict[str, object]:
    """A stream, and what was counted meanwhile."""
    before = read_counters()
    read, seconds = stream()
    counted = read_counters().since(before)
    return {"values": {"bandwidth": read / seconds / 1e6}, "evidence": add_work(counted, read)}


def measure(near: socket.socket) -> dict[str, object]:
    """Some exchanges, and what was counted meanwhile."""
    before = read_counters()
    took = [exchange(near, number) for number in range(ROUNDS)]
    counted = read_counters().since(before)
    good = [each / 1000 for each in took if each > 0]
    return {
        "values": {"p50": median(good)} if len(good) > ROUNDS // 2 else {},
        "evidence": add_work(counted, len(good) * BURST),
    }


def answer(keeper: Keeper, work: Work, near: socket.socket, line: str) -> dict[str, object]:
    question = json.loads(line)
    if "read" in question:
        return {"value": keeper.knob(question["read"]).read()}
    try:
        work.apply(question["setting"])
        return measure_bulk() if question["phase"] == "bulk" else measure(near)
    except VicinalError as error:
        return {"error": str(error)}


def main() -> None:
    """Answer until the end."""
    channel = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
    tty.setraw(channel)
    questions, answers = os.fdopen(channel, "r"), os.fdopen(os.dup(channel), "w")
    card = connect()
    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.bind((HERE, 0))
    near.settimeout(LOST_SECONDS)
    while exchange(near, 1 << 40) < 0:  # until the link is up, and each knows the other
        pass

    def say(found: dict[str, object]) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    say({"ready": True})
    with sole_command(STATE):
        keeper = Keeper(Machine(), STATE / "journal")
        keeper.recover()
        say({"card": card} if json.loads(questions.readline()) == {"card": True} else {})
        with keeper.temporarily() as work:
            for line in questions:
                if json.loads(line) == {"end": True}:
                    break
                say(answer(keeper, work, near, line))
        say({"value": keeper.knob(f"{card}/rx-usecs").read()})


main()
