"""Commands of a cluster's file that root runs in a container: once, or whenever it starts.

They come last, when the node has its interfaces.
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
    """The commands of one node; one that is made anew runs them all."""

    KIND: ClassVar[str] = "commands"

    cluster: str
    node: str
    commands: Commands
    base: Path

    @classmethod
    def of(cls, cluster: str, node: Node) -> Self | None:
        """What a container node is to run; None where that is nothing."""
        return cls(cluster, node.name, node.commands, default_base()) if node.commands else None

    @property
    def runs(self) -> bool:
        """Whether there is something to do when the node starts."""
        return bool(self.commands.each_boot)

    def observe(self) -> Observation:
        """Whether they were run, those of each start since the node's last."""
        kept = read_json(self._record)
        if kept is None:
            return Observation(Condition.ABSENT)
        if self.runs and (not kept["start"] or kept["start"] != self._start()):
            return Observation(Condition.STOPPED, "the node has started anew")
        return Observation(Condition.READY)

    def create(self) -> None:
        self._run("first_boot", self.commands.first_boot)
        self.start()

    def start(self) -> None:
        """Run those of each start."""
        self._run("each_boot", self.commands.each_boot)
        write_json(self._record, {"start": self._start()})

    def stop(self) -> None:
        """They have ended; they are run again when the node starts."""
        write_json(self._record, {"start": ""})

    def remove(self) -> None:
        """What they did goes with the node."""
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
                    "let it run in the background, or mend it in the cluster's file",
                ) from error
            if done.returncode != 0:
                tail = " | ".join(done.stdout.splitlines()[-_TAIL_LINES:]) or "nothing"
                raise VicinalError(
                    f"{self.node}: {key}: this command ended with status {done.returncode}: "
                    f"{command}; it said last: {tail}",
                    "mend it in the cluster's file",
                )

    def _start(self) -> str:
        """What tells this start of the node from its others; "" while it does not run."""
        try:
            nodes = self._open().nodes
        except VicinalError:
            return ""
        return next((node.pid_namespace for node in nodes if node.name == self.node), "")
