"""The far guest of test_tune_moderation.py, which answers the near one by TCP and RDMA."""

import json
import socket
import subprocess
import threading
import time

from tune_pair_inside import (
    ANEW_PORT,
    BULK_PORT,
    BURST,
    FAR,
    PORT,
    RDMA_BULK,
    RDMA_LATENCY,
    SMALL,
    address,
    channel,
    connect,
)

serving: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}


def answer_bursts(server: socket.socket) -> None:
    """Send a burst of small segments for each received segment."""
    while True:
        near, _ = server.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while near.recv(SMALL, socket.MSG_WAITALL):
            for _ in range(BURST):
                near.sendall(bytes(SMALL))
        near.close()


def stream(server: socket.socket) -> None:
    """Send as much as the client receives."""
    while True:
        near, _ = server.accept()
        try:
            while True:
                near.sendall(bytes(1 << 16))
        except OSError:
            near.close()


def serve(command: tuple[str, ...]) -> None:
    """Run one program after the other; each serves one client."""
    while True:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as serving[command]:
            pass
        time.sleep(0.05)


def begin_anew(server: socket.socket) -> None:
    """End the serving programs: one may wait for ever for a client that has given up."""
    while True:
        near, _ = server.accept()
        for program in serving.values():
            program.kill()
        near.close()


def main() -> None:
    """Serve until the guest is ended."""
    questions, answers = channel()
    connect(FAR)
    far = address(FAR)
    work = (
        (answer_bursts, socket.create_server((far, PORT))),
        (stream, socket.create_server((far, BULK_PORT))),
        (begin_anew, socket.create_server((far, ANEW_PORT))),
        (serve, RDMA_LATENCY),
        (serve, RDMA_BULK),
    )
    for action, argument in work:
        threading.Thread(target=action, args=(argument,), daemon=True).start()
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    questions.read()


main()
