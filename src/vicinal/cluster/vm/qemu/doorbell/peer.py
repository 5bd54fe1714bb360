"""One guest at the server: its connection, its eventfds, and what it is yet to be told."""

import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

VERSION = 0
"""Of the protocol: the first word that a client is told."""
MEMORY = -1
"""What comes instead of a peer's number with the descriptor of the shared memory."""
_WORD = struct.Struct("<q")


@dataclass(frozen=True)
class Message:
    """One word, and a descriptor that goes with it."""

    word: int
    descriptor: int | None = None


@dataclass(eq=False)
class Peer:
    """A connected client. QEMU closes the connection when its guest ends, and never says a word."""

    number: int
    """What other guests ring it by, from 1 to 65535."""
    connection: socket.socket
    """One that does not block."""
    eventfds: tuple[int, ...]
    """One for each of its interrupts, by their vectors; the server's own, to be closed by it."""
    greeted_by: float
    """When it has to have taken its first messages: a time of the monotonic clock."""
    _waiting: deque[Message] = field(default_factory=deque)

    @property
    def waits(self) -> bool:
        """Whether there is something that it was not told yet."""
        return bool(self._waiting)

    def tell(self, messages: Sequence[Message]) -> None:
        """Tell it something, later if it does not listen now."""
        self._waiting.extend(messages)

    def tell_of(self, other: "Peer") -> None:
        """Another, or itself, is there: how to ring it."""
        self.tell([Message(other.number, eventfd) for eventfd in other.eventfds])

    def tell_gone(self, other: "Peer") -> None:
        """Another is there no more. What it was not told of that one yet, it need not know."""
        known = len(self._waiting)
        kept = [message for message in self._waiting if message.word != other.number]
        self._waiting = deque(kept)
        if known - len(kept) < len(other.eventfds):
            self.tell([Message(other.number)])

    def send(self) -> None:
        """Send what it takes without waiting. Raises OSError where it is gone."""
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
