"""Runs the command `vicinal` without an import for each call: see command_server.py."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from launch_support import package_path
from process_support import signal_all

COMMAND_SECONDS = 240.0


class CommandServer:
    """A process that runs the command in its forks: see command_server.py.

    `enter` turns its command line into one that runs it in other namespaces.
    """

    def __init__(
        self, directory: Path, enter: Callable[[list[str]], list[str]] | None = None
    ) -> None:
        self._outputs = directory / "stdout", directory / "stderr"
        self._entered = enter is not None
        own = [sys.executable, str(Path(__file__).with_name("command_server.py"))]
        self._process = subprocess.Popen(
            enter(own) if enter else own,
            env=os.environ | {"PYTHONPATH": package_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(COMMAND_SECONDS) == 0

    def _answer(self, seconds: float) -> int:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"the command did not end within {seconds} s")
        return int(self._process.stdout.readline())

    def run(
        self, arguments: list[str], directory: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        for output in self._outputs:
            output.write_bytes(b"")
        request = {
            "arguments": arguments,
            "directory": str(directory),
            "environment": environment,
            "stdout": str(self._outputs[0]),
            "stderr": str(self._outputs[1]),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        child = self._answer(COMMAND_SECONDS)
        try:
            status = self._answer(COMMAND_SECONDS)
        except BaseException:
            if self._entered:  # process numbers may differ there
                inside = psutil.Process(self._process.pid).children(recursive=True)
                signal_all(inside, signal.SIGKILL)
            else:
                os.killpg(child, signal.SIGKILL)
                self._answer(COMMAND_SECONDS)
            raise
        said, complained = (output.read_text() for output in self._outputs)
        return subprocess.CompletedProcess(["vicinal", *arguments], status, said, complained)
