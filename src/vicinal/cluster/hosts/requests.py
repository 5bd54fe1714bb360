"""An agent's side of what a command and the agents of hosts say to each other: see protocol.py."""

import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from vicinal.cluster.hosts.protocol import ALIVE_SECONDS, SILENCE_SECONDS, Request

_LONGEST_REQUEST = 16 << 20


class Requests:
    """What comes on stdin, line by line; read by a thread, so that it is heard during the work."""

    def __init__(self) -> None:
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._making = False
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """The next request; None at the end, and when nothing was heard for long."""
        while True:
            try:
                found = self._lines.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                return None
            if found is None or found.get("do") != Request.HERE:
                return found

    def making(self, begun: bool) -> None:
        """While something is being made, the end of requests and UNDO end this process's work."""
        with self._lock:
            self._making = begun

    def _read(self) -> None:
        with suppress(OSError, ValueError), os.fdopen(0, "rb", closefd=False) as lines:
            while line := lines.readline(_LONGEST_REQUEST):
                request = json.loads(line)
                self._lines.put(request)
                if request.get("do") == Request.UNDO:
                    self._end()
        self._lines.put(None)
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._making:
                os.kill(os.getpid(), signal.SIGTERM)


class Answers:
    """What goes to the command, by the present stdout; it hears that we live during all work."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._stream = sys.stdout
        self._speaking = threading.Lock()
        threading.Thread(target=self._live, daemon=True).start()

    def say(self, **message: Any) -> None:
        """Say it."""
        # Whoever does not hear us is gone: what was made is undone, by the end of the requests.
        with self._speaking, suppress(BrokenPipeError):
            self._stream.write(f"{self._mark}{json.dumps(message)}\n")
            self._stream.flush()

    def _live(self) -> None:
        tick = threading.Event()
        with suppress(OSError, ValueError):
            while not tick.wait(ALIVE_SECONDS):
                self.say(alive=True)
