"""Jobs in one node that has no network: launchers cannot reach it from the head, and run in it."""

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.cluster import ContainerCluster
from vicinal.cluster.nodes.job_nodes import Node, Places


class LoneNode:
    """The node as JobNodes."""

    def __init__(self, cluster: ContainerCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    @property
    def nodes(self) -> list[Node]:
        """It alone."""
        return [node for node in self._cluster.nodes if node.name == self._name]

    @property
    def places(self) -> Places:
        """Where it finds what is its own."""
        return self._cluster.places

    @property
    def exchange(self) -> Path:
        """The directory for regions as this process sees it."""
        return self._cluster.exchange

    def seen_from_host(self, path: str) -> Path:
        """A file or directory of the head's, as this process can reach it."""
        return self._cluster.seen_from_host(path)

    def head_command(self, command: Sequence[str], directory: Path | None = None) -> list[str]:
        """The command line that runs `command` in the node."""
        enter = [layout.ENTER, "--directory", str(directory or Path.cwd()), self._name]
        return self._cluster.head_command([*enter, *command], Path("/"))

    def end_command(self, running: subprocess.Popen[bytes]) -> None:
        """Kill what head_command() started, if it has not ended, and reap it."""
        self._cluster.end_command(running)

    def signal_command(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to what head_command() started: in the node nobody hands it on."""
        del running
        processes = sorted(self.processes(), key=lambda process: process.pid)
        with suppress(psutil.Error):
            for process in processes[:1]:
                process.send_signal(number)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """What jobs run in it; host process ids."""
        return self._cluster.processes(node or self._name)

    def clear(self) -> None:
        """Kill what jobs left in it."""
        self._cluster.clear()

    def ended_nodes(self) -> list[str]:
        """Its name, if it does not run."""
        return [name for name in self._cluster.ended_nodes() if name == self._name]
