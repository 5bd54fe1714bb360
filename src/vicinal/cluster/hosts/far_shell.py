"""A launcher's way from the head of a host's containers to the containers of other hosts.

The head has no network except the cluster's. So the launcher sends a command for another host to
the Vicinal command outside the head, by a socket that both see, with the command's standard
streams. The Vicinal command reaches the other host by ssh. The launcher's side is
nodes/container/remote_shell.py.
"""

import json
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from vicinal.cluster.nodes.container.remote_shell import STREAMS

_LONGEST = 4 << 20
_ASK_SECONDS = 30.0
_FAILED = 255
"""The exit status of ssh if its connection fails."""


class FarShell:
    """A server that runs commands in nodes of other hosts, until close().

    `path` is the path of its socket. `command` returns the command line on this host that runs a
    command in a node.
    """

    def __init__(self, path: Path, command: Callable[[str, Sequence[str]], list[str]]) -> None:
        self._path = path
        self._command = command
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End the running commands, and remove the socket."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.terminate()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                asked, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(asked,), daemon=True).start()

    def _serve(self, asked: socket.socket) -> None:
        status = _FAILED
        with asked, suppress(OSError, ValueError, KeyError):
            asked.settimeout(_ASK_SECONDS)
            _, streams, _, _ = socket.recv_fds(asked, 1, STREAMS)
            try:
                with asked.makefile("rb") as lines:
                    request = json.loads(lines.readline(_LONGEST))
                asked.settimeout(None)
                variables = [f"{name}={value}" for name, value in request["environment"].items()]
                words = ["env", *variables, "/bin/sh", "-c", str(request["command"])]
                status = self._run(self._command(str(request["node"]), words), streams, asked)
            finally:
                for stream in streams:
                    os.close(stream)
            asked.sendall(f"{status}\n".encode())

    def _run(self, line: Sequence[str], streams: Sequence[int], asked: socket.socket) -> int:
        with self._lock:
            if self._closed:
                return _FAILED
            process = subprocess.Popen(
                line,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,  # signals go through the launcher
            )
            self._running.add(process)
        # If the requesting process is killed, its command ends too.
        Thread(target=_end_with, args=(asked.dup(), process), daemon=True).start()
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)


def _end_with(asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
    with asked, suppress(OSError):
        asked.recv(1)
        if process.poll() is None:
            process.terminate()
