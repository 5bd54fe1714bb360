"""The server that guests' ivshmem-doorbell devices connect to: version 0 of QEMU's protocol.

Each client receives words of 8 bytes (little endian), some together with a descriptor:

    0                           the version
    N                           the client's own number
    -1         + the memory     what its device shows to the guest
    N          + an eventfd     a connected guest, once for each of its vectors; at the end the
                                client itself, whose eventfds interrupt it
    N                           the guest with this number has ended

The server takes no part in interrupts: QEMU writes to the other guest's eventfd. It never waits for
a client, and a client has nothing to send. It drops a client that sends, or that does not receive.
"""

import os
import resource
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from vicinal.base.errors import VicinalError

VERSION = 0
"""Version of the protocol: the first word that a client receives."""
MEMORY = -1
"""Stands for a peer's number in the message with the descriptor of the shared memory."""
_WORD = struct.Struct("<q")
_GREETING_SECONDS = 60.0
"""Time limit for a client to receive its first messages; QEMU does so before its guest boots."""
_SEND_BUFFER = 16384
"""In bytes. Unreceived messages carry descriptors, and Linux limits the descriptors that a user
has in flight.
"""
_CREDENTIALS = struct.Struct("3i")
_NUMBERS = 65535
_SPARE_DESCRIPTORS = 64


@dataclass(frozen=True)
class Message:
    """One word, with an optional descriptor."""

    word: int
    descriptor: int | None = None


@dataclass(eq=False)
class Peer:
    """A connected client. QEMU never sends, and closes the connection when its guest ends."""

    number: int
    """The number by which other guests interrupt it, from 1 to 65535."""
    connection: socket.socket
    """A non-blocking socket."""
    eventfds: tuple[int, ...]
    """One for each of its interrupts, by vector. The server owns and closes them."""
    greeted_by: float
    """Deadline for receiving its first messages, of the monotonic clock."""
    _waiting: deque[Message] = field(default_factory=deque)

    @property
    def waits(self) -> bool:
        """Whether it has unsent messages."""
        return bool(self._waiting)

    def tell(self, messages: Sequence[Message]) -> None:
        """Queue messages, which are sent when the client receives."""
        self._waiting.extend(messages)

    def tell_of(self, other: "Peer") -> None:
        """Announce a connected client, or this client itself, with its eventfds."""
        self.tell([Message(other.number, eventfd) for eventfd in other.eventfds])

    def tell_gone(self, other: "Peer") -> None:
        """Announce that a client has ended, and drop unsent messages about it."""
        known = len(self._waiting)
        kept = [message for message in self._waiting if message.word != other.number]
        self._waiting = deque(kept)
        if known - len(kept) < len(other.eventfds):
            self.tell([Message(other.number)])

    def send(self) -> None:
        """Send queued messages without blocking. Raises OSError if the client has ended."""
        while self._waiting:
            message = self._waiting[0]
            descriptors = [] if message.descriptor is None else [message.descriptor]
            try:
                socket.send_fds(self.connection, [_WORD.pack(message.word)], descriptors)
            except BlockingIOError:
                return
            self._waiting.popleft()

    def close(self) -> None:
        """End the connection and close its descriptors."""
        self.connection.close()
        for eventfd in self.eventfds:
            with suppress(OSError):
                os.close(eventfd)


class DoorbellServer:
    """Serves the guests of one region, which belong to one user.

    `listener` is a listening Unix socket (SOCK_STREAM), `memory` a descriptor of the region's file.
    Each client has `vectors` interrupts; at most `clients` are connected at a time. Raises
    VicinalError if this user may not open the number of files that this takes.
    """

    def __init__(self, listener: socket.socket, memory: int, *, vectors: int, clients: int) -> None:
        _allow_descriptors(clients * (vectors + 1) + _SPARE_DESCRIPTORS)
        self._listener = listener
        self._memory = memory
        self._vectors = vectors
        self._clients = clients
        self._peers: dict[int, Peer] = {}
        self._last_number = 0
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until the process ends."""
        while True:
            self.step(None)

    def step(self, timeout: float | None) -> None:
        """Handle all present events, after waiting at most `timeout` seconds for one."""
        greeting = [peer.greeted_by - time.monotonic() for peer in self._peers.values()]
        bounds = [each for each in (timeout, *greeting) if each is not None and each < float("inf")]
        events = self._selector.select(max(0.0, min(bounds)) if bounds else None)
        # First drop clients that closed the connection or sent something: a new client may be the
        # same guest, which ended and starts again, and needs their id.
        self._drop([key.data for key, event in events if key.data and event & selectors.EVENT_READ])
        for key, _ in events:
            if key.data is None:
                self._accept()
        self._send()

    def close(self) -> None:
        """End all connections."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the client has gone already
            return
        if len(self._peers) >= self._clients or not _is_ours(connection):
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        eventfds = tuple(os.eventfd(0, os.EFD_CLOEXEC) for _ in range(self._vectors))
        deadline = time.monotonic() + _GREETING_SECONDS
        peer = Peer(self._next_number(), connection, eventfds, deadline)
        peer.tell([Message(VERSION), Message(peer.number), Message(MEMORY, self._memory)])
        for other in self._peers.values():
            other.tell_of(peer)
            peer.tell_of(other)
        peer.tell_of(peer)
        self._peers[peer.number] = peer
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)

    def _next_number(self) -> int:
        """A free number, used last of all: messages about its former owner may be in flight."""
        numbers = (1 + (self._last_number + step) % _NUMBERS for step in range(_NUMBERS))
        self._last_number = next(number for number in numbers if number not in self._peers)
        return self._last_number

    def _send(self) -> None:
        lost = []
        for peer in self._peers.values():
            try:
                peer.send()
            except OSError:
                lost.append(peer)
            events = selectors.EVENT_READ
            if peer.waits:
                events |= selectors.EVENT_WRITE
            else:
                peer.greeted_by = float("inf")
            self._selector.modify(peer.connection, events, peer)
        lost += [peer for peer in self._peers.values() if peer.greeted_by < time.monotonic()]
        self._drop(lost)

    def _drop(self, gone: list[Peer]) -> None:
        for peer in self._living(gone):
            del self._peers[peer.number]
            self._selector.unregister(peer.connection)
            peer.close()
            for other in self._peers.values():
                other.tell_gone(peer)
                self._selector.modify(
                    other.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, other
                )

    def _living(self, peers: list[Peer]) -> Iterator[Peer]:
        return (peer for peer in peers if self._peers.get(peer.number) is peer)


def _is_ours(connection: socket.socket) -> bool:
    """Whether the client belongs to this user or to root. The socket's mode may have changed."""
    size = _CREDENTIALS.size
    with suppress(OSError):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        _, user, _ = _CREDENTIALS.unpack(found)
        return user in (0, os.geteuid())
    return False


def _allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise VicinalError(
                f"the doorbells' server needs {count} open files, and this user may have {hard}",
                "raise the limit (ulimit -n), or use fewer guests or vectors",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
