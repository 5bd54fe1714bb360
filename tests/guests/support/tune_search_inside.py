"""The near guest of test_tune_moderation.py, as root, which answers lines of JSON.

A wire joins its virtual function and that of the far guest (tune_far_inside.py). The far guest's
packets cause its interrupts, which so are interrupts of reception.
"""

import json
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tune_pair_inside import (
    ANEW_PORT,
    BULK_PORT,
    BURST,
    FAR,
    NEAR,
    PORT,
    RDMA_BULK,
    RDMA_LATENCY,
    SMALL,
    address,
    channel,
    connect,
)

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.evidence import add_work, read_counters
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.settings.applier import Applier, Work
from vicinal.labs.tune.settings.state_directory import sole_command

STATE = Path("/run/tune")
ROUNDS = 40
LOST_SECONDS = 60.0
"""Prevents hanging in steps that take seconds: after this time nothing more will arrive."""
BULK_SECONDS = 0.4
WINDOW = 16 << 10
"""An interrupt announces the end of a transfer. With the usual window, TCP is as fast with late
interrupts.
"""
PATIENCE = 600.0


def bursts() -> tuple[dict[str, float], int]:
    """P50 of sending a small segment and receiving a burst of them, and the number received."""
    took = []
    with socket.create_connection((address(FAR), PORT), timeout=LOST_SECONDS) as far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            began = time.monotonic_ns()
            far.sendall(bytes(SMALL))
            left = BURST * SMALL
            while left:
                left -= len(far.recv(left))
            took.append((time.monotonic_ns() - began) / 1000)
    return {"p50": median(took)}, ROUNDS * BURST


def stream() -> tuple[dict[str, float], int]:
    """Bandwidth of TCP with a small window, and the bytes received; the first do not count."""
    with socket.socket() as far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        far.settimeout(LOST_SECONDS)
        far.connect((address(FAR), BULK_PORT))
        room = memoryview(bytearray(1 << 18))
        for seconds in (BULK_SECONDS / 2, BULK_SECONDS):
            began, read = time.monotonic(), 0
            while time.monotonic() < began + seconds:
                read += far.recv_into(room)
        return {"bandwidth": read / (time.monotonic() - began) / 1e6}, read


def rdma_latency() -> tuple[dict[str, float], int]:
    """P50 of half a round trip, as perftest prints it, and its messages."""
    words = perftest(RDMA_LATENCY)
    return {"p50": float(words[4])}, int(words[1])


def rdma_bulk() -> tuple[dict[str, float], int]:
    """Bandwidth of reads, as perftest prints the average, and its messages."""
    words = perftest(RDMA_BULK)
    return {"bandwidth": float(words[3]) * 1000 / 8}, int(words[1])


def perftest(command: tuple[str, ...]) -> list[str]:
    """The words of its one line of numbers. The far end may just be about to listen again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            done = subprocess.run(
                [*command, address(FAR)],
                capture_output=True,
                text=True,
                timeout=LOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:  # this trial is lost, but the next one must not be
            socket.create_connection((address(FAR), ANEW_PORT), LOST_SECONDS).close()
            raise
        if done.returncode == 0:
            lines = [line.split() for line in done.stdout.splitlines()]
            return next(words for words in lines if words and words[0].isdigit())
        if time.monotonic() > deadline:
            raise VicinalError(f"{command[0]}: {done.stdout}{done.stderr}", "see the far guest")
        time.sleep(0.1)


PHASES: dict[str, Callable[[], tuple[dict[str, float], int]]] = {
    "tcp bursts": bursts,
    "tcp stream": stream,
    "rdma latency": rdma_latency,
    "rdma reads": rdma_bulk,
}


def measure(phase: str) -> dict[str, object]:
    """One trial, and the counters meanwhile."""
    before = read_counters()
    values, work = PHASES[phase]()
    counted = read_counters().since(before)
    return {"values": values, "evidence": add_work(counted, work)}


def answer(applier: Applier, work: Work, vf: str, line: str) -> dict[str, object]:
    question = json.loads(line)
    if "vf" in question:
        return {"vf": vf}
    if "read" in question:
        return {"value": applier.knob(question["read"]).read()}
    try:
        work.apply(question["setting"])
        return measure(question["phase"])
    except (VicinalError, OSError, subprocess.SubprocessError) as error:
        return {"error": str(error)}


def main() -> None:
    """Answer until the end of the input."""
    questions, answers = channel()
    vf = connect(NEAR)

    def say(found: dict[str, object]) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    say({"ready": True})
    with sole_command(STATE):
        applier = Applier(TunedHost(), STATE / "journal")
        applier.recover()
        say({"vf": vf} if json.loads(questions.readline()) == {"vf": True} else {})
        with applier.temporarily() as work:
            for line in questions:
                if json.loads(line) == {"end": True}:
                    break
                say(answer(applier, work, vf, line))
        say({"value": applier.knob(f"{vf}/rx-usecs").read()})


main()
