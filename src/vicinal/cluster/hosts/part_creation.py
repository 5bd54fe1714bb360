"""The creation of a cluster's parts on all hosts, until all are kept or all are undone."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import UNDO_SECONDS, HostPartConnection, Listener, Request
from vicinal.cluster.plan.applying import Show

Say = Callable[[str], None]

_LOOK_SECONDS = 0.1


class PartCreation(Thread):
    """The creation of one host's part, until the part is kept or undone."""

    def __init__(self, connection: HostPartConnection, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.made = False
        self.ended = False
        self.clean = False
        """Whether nothing is left of an undone part."""
        self.error: VicinalError | None = None
        self._request = request
        self._verdict: Queue[Request] = Queue()
        self.listener = Listener()
        self.tell: Callable[[], None] = lambda: None

    def run(self) -> None:
        """Request the part, and wait for settle()."""
        try:
            answer = self.connection.ask_openly(Request.UP, self._request, self.listener)
            if "made" in answer:
                self.made = True
                self.tell()
                answer = self.connection.ask_openly(self._verdict.get(), None, self.listener)
            if "error" in answer:
                self.error = VicinalError(
                    f"host {self.connection.name}: {answer['error']}", str(answer.get("remedy"))
                )
            self.clean = answer.get("left") == []
        except VicinalError as error:
            self.error = error
        finally:
            self.ended = True
            self.tell()

    def settle(self, verdict: Request) -> None:
        """Keep the part, or undo it during or after its creation."""
        if verdict is Request.UNDO and not self.made:
            self.connection.tell(verdict)
        self._verdict.put(verdict)


class PartCreations:
    """The creation of several parts at the same time."""

    def __init__(self, parts: Sequence[PartCreation], show: Show, say: Say) -> None:
        self._parts = parts
        self._heard: Queue[Callable[[], object]] = Queue()
        for part in parts:
            part.tell = lambda: self._heard.put(lambda: None)
            part.listener = Listener(
                lambda step: self._heard.put(lambda: show(step)),
                lambda text: self._heard.put(lambda: say(text)),
            )

    def make(self) -> None:
        """Create all parts, and then keep all. Raises the first error."""
        for part in self._parts:
            part.start()
        while not all(part.made for part in self._parts):
            self._heard.get()()
            self._raise_error()
        for part in self._parts:
            part.settle(Request.KEEP)
        while not all(part.ended for part in self._parts):
            self._heard.get()()
        self._raise_error()

    def undo(self) -> list[str]:
        """Undo all parts that are not undone yet; return the hosts on which parts may be left."""
        for part in self._parts:
            if part.is_alive():
                part.settle(Request.UNDO)
        deadline = time.monotonic() + UNDO_SECONDS
        while any(part.is_alive() for part in self._parts) and time.monotonic() < deadline:
            with suppress(Empty):
                self._heard.get(timeout=_LOOK_SECONDS)()
        return [part.connection.name for part in self._parts if part.ident and not part.clean]

    def _raise_error(self) -> None:
        for part in self._parts:
            if part.ended and part.error is not None:
                raise part.error
