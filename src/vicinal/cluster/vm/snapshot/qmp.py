"""Talking to a QEMU by its machine protocol (QMP), over a socket that QEMU was started with."""

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from vicinal.base.errors import VicinalError

_ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.02


class Monitor:
    """The connection to one QEMU. Raises VicinalError where that has ended, or refuses."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.settimeout(_ANSWER_SECONDS)
        self._read = end.makefile("rb")
        try:
            self._line()  # its greeting
            self.ask("qmp_capabilities")
        except VicinalError:
            self.close()
            raise

    def close(self) -> None:
        """Let it go; QEMU runs on."""
        self._read.close()
        self._socket.close()

    def ask(self, command: str, arguments: Mapping[str, object] | None = None, *files: int) -> Any:
        """Have QEMU do something, and return its answer. It may get open files with it."""
        text = json.dumps({"execute": command, "arguments": arguments or {}}).encode() + b"\n"
        try:
            socket.send_fds(self._socket, [text], files)
        except OSError as error:
            raise self._silent(command) from error
        while "return" not in (answer := self._line(command)):
            if "error" in answer:
                raise VicinalError(
                    f"QEMU refuses {command}: {answer['error'].get('desc')}",
                    "use a QEMU of a release that was tried: docs/how-to/images.md",
                )
        return answer["return"]

    def migrate(self, command: str, file: int) -> None:
        """Save the machine's state to an open file (`migrate`), or take it from there."""
        capability = {"capability": "x-ignore-shared", "state": True}
        self.ask("migrate-set-capabilities", {"capabilities": [capability]})
        self.ask("getfd", {"fdname": "state"}, file)
        self.ask(command, {"uri": "fd:state"})
        deadline = time.monotonic() + _ANSWER_SECONDS
        while (status := self.ask("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise VicinalError(
                    f"QEMU's {command} came to nothing ({status})",
                    "see that there is room, and try again",
                )
            time.sleep(_POLL_SECONDS)

    def _line(self, command: str = "its greeting") -> dict[str, Any]:
        try:
            answer = json.loads(self._read.readline())
        except (OSError, ValueError) as error:
            raise self._silent(command) from error
        if not isinstance(answer, dict):
            raise self._silent(command)
        return answer

    @staticmethod
    def _silent(command: str) -> VicinalError:
        return VicinalError(
            f"QEMU did not answer to {command}", "see that memory suffices, and try again"
        )
