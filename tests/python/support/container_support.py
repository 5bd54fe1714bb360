"""What tests of containers share."""

import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from vicinal.cluster.nodes.container.choice import RUNTIMES, available_runtimes
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.container.spec import ContainerSpec

GUARD_SECONDS = 60.0
TOKEN = "VICINAL_TEST_CONTAINERS"
"""The variable that marks the processes of a test."""


def installed(name: str) -> Any:
    missing = name not in [runtime.name for runtime in available_runtimes()]
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{name} is not installed"))


each_runtime = pytest.mark.parametrize("runtime", [installed(name) for name in RUNTIMES])


def _long(runtime: Any) -> Any:
    return pytest.param(*runtime.values, marks=(*runtime.marks, pytest.mark.long))


two_runtimes = pytest.mark.parametrize("runtime", [installed("crun"), installed("bubblewrap")])
one_runtime = pytest.mark.parametrize(
    "runtime", [installed("crun"), _long(installed("bubblewrap"))]
)
"""For tests that hardly depend on the runtime: with bubblewrap they are long tests."""


def run(
    cluster: ContainerCluster, node: str, *command: str, stdin: str = "", directory: str = "/"
) -> str:
    done = subprocess.run(
        cluster.exec_command(node, command, directory=directory),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def both(cluster: ContainerCluster, *command: str) -> list[str]:
    return [run(cluster, node, *command) for node in ("node0", "node1")]


class Traces:
    """What clusters leave, compared before and after a test."""

    def __init__(self, base: Path, name: str) -> None:
        self.base = base
        self.name = name
        self.token = secrets.token_hex(8)
        self.mounts = Path("/proc/self/mountinfo").read_text()

    def left(self) -> list[str]:
        found = [str(self.base)] if self.base.exists() else []
        found += map(str, Path("/sys/fs/cgroup").glob(f"**/vicinal-{self.name}-*"))
        found += map(str, Path("/sys/fs/cgroup").glob(f"**/vicinal-runc-*-{self.name}*"))
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    environment = (process / "environ").read_bytes()
                except OSError:
                    continue
                # Processes inherit the token, so every process has it whose environment was not
                # replaced.
                if f"{TOKEN}={self.token}".encode() in environment:
                    found.append((process / "cmdline").read_text().replace("\0", " "))
        if Path("/proc/self/mountinfo").read_text() != self.mounts:
            found.append("a mount")
        return found

    def check(self) -> None:
        # Processes that were killed with the head process disappear when the kernel has removed
        # them.
        deadline = time.monotonic() + GUARD_SECONDS
        while left := self.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.02)


def spec(traces: Traces, number: int = 0, **values: object) -> ContainerSpec:
    """The specification of a node with a name that no other test uses."""
    return ContainerSpec(
        cluster=traces.name,
        name=f"{traces.name}n{number}",
        environment={TOKEN: traces.token},
        **values,  # type: ignore[arg-type]
    )
