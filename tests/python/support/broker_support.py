"""A broker of regions in a process of its own, and processes of other users."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS

VICINAL = [str(CHECKOUT / "build/venv/bin/python"), "-P", "-m", "vicinal"]

OTHER_USERS = (54321, 54322)
"""Users that no system has. Only root can start their processes."""


def as_user(user: int) -> list[str]:
    """Words before a command that runs as another user, whose only group has the same number."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


class Broker:
    """`vicinal region serve` for the sockets of a directory that all users can pass."""

    def __init__(
        self, directory: Path, *arguments: object, sockets: Sequence[str] = ("s",)
    ) -> None:
        self.paths = [directory / each for each in sockets]
        self.path = self.paths[0]
        self.name = f"socket:{self.path}"
        named = [word for each in self.paths for word in ("--socket", str(each))]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, close() closes it
        self.process = subprocess.Popen(
            [*VICINAL, "region", "serve", *named, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = [self.process.stdout.readline() for _ in self.paths]
        if not self.said[-1]:
            self.close()
            raise AssertionError(self.errors)
        until(lambda: self.server is not None)

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    @property
    def server(self) -> psutil.Process | None:
        """The process that answers."""
        children = psutil.Process(self.process.pid).children()
        return children[0] if children else None

    def end(self) -> int:
        """End the broker as its user does; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GUARD_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def serving(*arguments: object, sockets: Sequence[str] = ("s",)) -> Iterator[Broker]:
    """A broker in a new directory, which every user can pass and only this one can write."""
    with tempfile.TemporaryDirectory(prefix="vicinal-broker-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        broker = Broker(directory, *arguments, sockets=sockets)
        try:
            yield broker
        finally:
            broker.close()


@contextmanager
def user_namespace(first: int) -> Iterator[str]:
    """A new user namespace, whose users and groups are the host's numbers from `first` on.

    Gives the path by which nsenter(1) finds the namespace.
    """
    own = Path("/proc/self/ns/user").readlink()
    holder = subprocess.Popen(["unshare", "--user", "--", "sleep", "infinity"])
    try:
        files = Path(f"/proc/{holder.pid}")
        until(lambda: (files / "ns/user").readlink() != own)
        for name in ("uid_map", "gid_map"):
            (files / name).write_text(f"0 {first} 65536\n")
        yield str(files / "ns/user")
    finally:
        holder.kill()
        holder.wait()
