"""Commands of a cluster file that root runs in a container: once, or at each start.

They run last, after the node has its interfaces.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.model import Commands, Node
from vicinal.cluster.nodes.container.state import default_base, read_json, write_json
from vicinal.cluster.plan.resource import Condition, Observation
from vicinal.cluster.resources.in_container import InContainer

_SECONDS = 300.0
_TAIL_LINES = 12


@dataclass(frozen=True)
class CommandsResource(InContainer):
    """The commands of a node; a recreated node runs all of them."""

    KIND: ClassVar[str] = "commands"

    cluster: str
    node: str
    commands: Commands
    base: Path

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """Return the commands of a container node; None without commands."""
        return cls(cluster, node.name, node.commands, default_base()) if node.commands else None

    @property
    def runs(self) -> bool:
        """Whether the node has commands for each start."""
        return bool(self.commands.each_boot)

    def observe(self) -> Observation:
        """Check that the commands were run; those of `each_boot` since the node's last start."""
        kept = read_json(self._record)
        if kept is None:
            return Observation(Condition.ABSENT)
        if self.runs and (not kept["start"] or kept["start"] != self._start()):
            return Observation(Condition.STOPPED, "the node was restarted")
        return Observation(Condition.READY)

    def create(self) -> None:
        self._run("first_boot", self.commands.first_boot)
        self.start()

    def start(self) -> None:
        """Run the commands of `each_boot`."""
        self._run("each_boot", self.commands.each_boot)
        write_json(self._record, {"start": self._start()})

    def stop(self) -> None:
        """Record that the node has no start, so that its next start runs the commands."""
        write_json(self._record, {"start": ""})

    def remove(self) -> None:
        """Remove the record; the effects of the commands end with the node."""
        self._record.unlink(missing_ok=True)

    def _run(self, key: str, commands: tuple[str, ...]) -> None:
        cluster = self._open() if commands else None
        for command in commands:
            assert cluster is not None
            line = cluster.exec_command(self.node, ["/bin/sh", "-c", command])
            try:
                done = subprocess.run(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    timeout=_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise VicinalError(
                    f"{self.node}: {key}: this command took longer than {_SECONDS:g} s: {command}",
                    "run the command in the background, or correct it in the cluster file",
                ) from error
            if done.returncode != 0:
                tail = " | ".join(done.stdout.splitlines()[-_TAIL_LINES:]) or "none"
                raise VicinalError(
                    f"{self.node}: {key}: this command ended with status {done.returncode}: "
                    f"{command}; its last output: {tail}",
                    "correct it in the cluster file",
                )

    def _start(self) -> str:
        """Return an identifier of the node's present start, its PID namespace; "" if stopped."""
        try:
            nodes = self._open().nodes
        except VicinalError:
            return ""
        return next((node.pid_namespace for node in nodes if node.name == self.node), "")
