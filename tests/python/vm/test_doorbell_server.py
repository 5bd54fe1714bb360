"""The ivshmem-doorbell server: what it tells clients, and what they cannot do to each other."""

import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.qemu.doorbell import server as module
from vicinal.cluster.vm.qemu.doorbell.running import RunningServer
from vicinal.cluster.vm.qemu.doorbell.server import MEMORY, VERSION, DoorbellServer, Message, Peer

VECTORS = 3
CLIENTS = 4
BOUND = 120.0  # seconds; a guard against hangs
WORD = struct.Struct("<q")


class Client:
    """A client like QEMU's device: it receives words, with or without a descriptor."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(BOUND)
        self.socket.connect(str(path))
        self.number = 0
        self.memory = -1
        self.peers: dict[int, list[int]] = {}
        self.heard: list[tuple[int, bool]] = []

    def take(self) -> int:
        """Receive one word, and act on it. Raises EOFError if the server closed the connection."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, WORD.size, 1)
        if not data:
            raise EOFError
        (word,) = WORD.unpack(data)
        self.heard.append((word, bool(descriptors)))
        position = len(self.heard)
        if position == 2:
            self.number = word
        elif position == 3:
            (self.memory,) = descriptors
        elif position > 3 and descriptors:
            self.peers.setdefault(word, []).extend(descriptors)
        elif position > 3:
            self._forget(word)
        return int(word)

    def greet(self) -> "Client":
        """Receive all words up to the client's own last eventfd, which ends the greeting."""
        while len(self.peers.get(self.number, [])) < VECTORS or not self.number:
            self.take()
        return self

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.take()

    def close(self) -> None:
        self.socket.close()
        for number in list(self.peers):
            self._forget(number)
        if self.memory >= 0:
            os.close(self.memory)
            self.memory = -1

    def _forget(self, number: int) -> None:
        for descriptor in self.peers.pop(number):
            os.close(descriptor)


class Served:
    """A server in a thread, and its clients."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "socket"
        self.region = directory / "region"
        self.region.write_bytes(bytes(4096))
        self.clients: list[Client] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._memory = os.open(self.region, os.O_RDWR)
        self.server = DoorbellServer(self._listener, self._memory, vectors=VECTORS, clients=CLIENTS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.server.step(0.05)

    def connect(self) -> Client:
        self.clients.append(Client(self.path))
        return self.clients[-1]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(BOUND)
        assert not self._thread.is_alive()
        self.server.close()
        for client in self.clients:
            client.close()
        self._listener.close()
        os.close(self._memory)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    descriptors = open_descriptors()
    running = Served(tmp_path)
    yield running
    running.close()
    assert open_descriptors() == descriptors


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def ring(descriptor: int) -> None:
    os.eventfd_write(descriptor, 1)


def rung(descriptor: int) -> int:
    os.set_blocking(descriptor, False)
    try:
        return os.eventfd_read(descriptor)
    except BlockingIOError:
        return 0


def test_a_client_is_told_version_number_memory_and_its_interrupts(served: Served) -> None:
    client = served.connect().greet()
    assert client.heard[0] == (VERSION, False)
    assert client.heard[1] == (client.number, False)
    assert client.heard[2] == (MEMORY, True)
    assert client.heard[3:] == [(client.number, True)] * VECTORS
    assert os.fstat(client.memory).st_ino == served.region.stat().st_ino
    assert os.pwrite(client.memory, b"x", 0) == 1  # it may write to the region


def test_clients_ring_each_other(served: Served) -> None:
    first = served.connect().greet()
    second = served.connect().greet()
    first.until(lambda: len(first.peers.get(second.number, [])) == VECTORS)
    assert len(second.peers[first.number]) == VECTORS
    assert first.number != second.number
    for vector in range(VECTORS):
        ring(first.peers[second.number][vector])
        assert [rung(each) for each in second.peers[second.number]] == [
            int(each == vector) for each in range(VECTORS)
        ]
        ring(second.peers[first.number][vector])
        assert [rung(each) for each in first.peers[first.number]] == [
            int(each == vector) for each in range(VECTORS)
        ]


def test_others_are_told_of_one_that_dies_and_its_number_rests(served: Served) -> None:
    first, second = served.connect().greet(), served.connect().greet()
    gone = second.number
    first.until(lambda: len(first.peers.get(gone, [])) == VECTORS)
    second.close()
    first.until(lambda: gone not in first.peers)
    assert first.heard[-1] == (gone, False)
    third = served.connect().greet()
    assert third.number not in (gone, first.number)
    assert set(third.peers) == {first.number, third.number}
    first.until(lambda: len(first.peers.get(third.number, [])) == VECTORS)
    ring(first.peers[third.number][0])
    assert rung(third.peers[third.number][0]) == 1


def test_one_that_speaks_is_dropped_and_nobody_else(served: Served) -> None:
    honest, hostile = served.connect().greet(), served.connect().greet()
    honest.until(lambda: len(honest.peers.get(hostile.number, [])) == VECTORS)
    hostile.socket.sendall(os.urandom(4096))
    with pytest.raises((EOFError, ConnectionResetError)):
        hostile.take()
    honest.until(lambda: hostile.number not in honest.peers)
    assert set(served.connect().greet().peers) == {honest.number, honest.number + 2}


def test_one_that_does_not_listen_holds_nobody_up(served: Served) -> None:
    """It learns in the end which clients are there, and nothing of those that have left."""
    honest, deaf = served.connect().greet(), served.connect().greet()
    for _ in range(300):
        visitor = served.connect().greet()
        visitor.close()
        served.clients.remove(visitor)
    last = served.connect().greet()
    honest.until(lambda: len(honest.peers.get(last.number, [])) == VECTORS)
    assert set(honest.peers) == {honest.number, deaf.number, last.number}
    (peer,) = [each for each in served.server._peers.values() if each.number == deaf.number]
    assert peer.waits
    assert len(peer._waiting) < 3 * (VECTORS + 1)
    deaf.until(lambda: len(deaf.peers.get(last.number, [])) == VECTORS)
    assert set(deaf.peers) == set(honest.peers)


def test_one_that_never_listens_loses_its_id(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its first words need more space than a socket's buffer has.
    monkeypatch.setattr(module, "_GREETING_SECONDS", 0.3)
    monkeypatch.setattr(served.server, "_vectors", 500)
    deaf = served.connect()
    gone = select.poll()
    gone.register(deaf.socket, select.POLLRDHUP)
    assert gone.poll(BOUND * 1000)
    with pytest.raises(EOFError):
        deaf.until(lambda: len(deaf.heard) >= 503)


def test_there_are_no_more_clients_than_agreed(served: Served) -> None:
    there = [served.connect().greet() for _ in range(CLIENTS)]
    with pytest.raises((EOFError, ConnectionResetError)):
        served.connect().take()
    numbers = {client.number for client in there}
    there.pop().close()
    deadline = time.monotonic() + BOUND
    while True:
        try:
            late = served.connect().greet()
            break
        except (EOFError, ConnectionResetError):
            assert time.monotonic() < deadline
    assert late.number not in numbers


def test_one_that_begins_anew_gets_the_place_that_it_left(tmp_path: Path) -> None:
    """The server may learn of the end and of the new connection at the same time."""
    (tmp_path / "region").write_bytes(bytes(4096))
    with socket.socket(socket.AF_UNIX) as listener, (tmp_path / "region").open("r+b") as memory:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(8)
        server = DoorbellServer(listener, memory.fileno(), vectors=1, clients=1)
        for _ in range(3):
            client = Client(tmp_path / "socket")
            server.step(BOUND)
            assert [client.take(), client.take() > 0] == [VERSION, True]
            client.close()
        server.close()


def test_numbers_begin_anew_and_pass_by_those_in_use(served: Served) -> None:
    first = served.connect().greet()
    assert first.number == 1
    served.server._last_number = 65534
    assert [served.connect().greet().number for _ in range(2)] == [65535, 2]


def test_strangers_are_not_served(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(module, "_CREDENTIALS", _Stranger())
    with pytest.raises((EOFError, ConnectionResetError)):
        served.connect().take()


class _Stranger:
    size = struct.calcsize("3i")

    def unpack(self, _: bytes) -> tuple[int, int, int]:
        return 1, 4712, 4712


def test_what_one_was_not_told_of_it_need_not_forget() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer(1, ours, (), 0.0)
        other = Peer(2, theirs, (ours.fileno(), theirs.fileno()), 0.0)
        peer.tell_of(other)
        peer.tell_gone(other)
        assert not peer.waits
        # The other client was partly announced, so the peer must hear that it is gone.
        peer.tell([Message(2, ours.fileno())])
        peer.tell_gone(other)
        peer.send()
        assert WORD.unpack(theirs.recv(100)) == (2,)


def test_too_few_open_files_are_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, 32))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(VicinalError, match=r"open files.*raise the limit"):
            DoorbellServer(listener, 0, vectors=VECTORS, clients=CLIENTS)


# ---- as a process ----


def test_a_server_runs_until_it_is_stopped(tmp_path: Path) -> None:
    region = tmp_path / "region"
    region.write_bytes(bytes(4096))
    server = RunningServer(tmp_path, region, clients=2, vectors=VECTORS)
    try:
        assert server.doorbell.socket.stat().st_mode & 0o777 == 0o600
        client = Client(server.doorbell.socket).greet()
        ring(client.peers[client.number][1])
        server.stop()
        with pytest.raises(EOFError):
            client.take()
        # The client keeps the interrupts that it already has.
        assert rung(client.peers[client.number][1]) == 1
        client.close()
    finally:
        server.stop()
    assert not psutil.pid_exists(server.process)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    region = tmp_path / "region"
    region.write_bytes(bytes(4096))
    with pytest.raises(VicinalError, match=r"did not start \(.*open files"):
        RunningServer(tmp_path, region, clients=60000, vectors=60000)


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "region").write_bytes(bytes(4096))
    code = (
        "import sys, time; from pathlib import Path\n"
        "from vicinal.cluster.vm.qemu.doorbell.running import RunningServer\n"
        "here = Path(sys.argv[1])\n"
        "server = RunningServer(here, here / 'region', clients=2)\n"
        "print(server.process, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.PIPE,
    ) as manager:
        assert manager.stdout is not None
        server = psutil.Process(int(manager.stdout.readline()))
        assert server.is_running()
        manager.kill()
    server.wait(BOUND)
