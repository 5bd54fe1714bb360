"""The destination host of a move, reached by ssh from the host that the VM leaves.

OpenNebula's own script also reaches the destination by ssh (qemu+ssh). The steps of both hosts are
in moves.py. This module imports little: the other host starts while the rest is imported.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import HostPartConnection
from vicinal.integrations.opennebula.call import Call, shown

MARK = "vicinal-one "
"""The prefix of answers; a login shell may write other lines."""
ACTION = "arrive"
"""Vicinal's script on the other host; OpenNebula has no script of this name."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


class Step(StrEnum):
    """A step of a move, which the other host does."""

    HELLO = "hello"
    """Check that both hosts have the same version of Vicinal."""
    PLACEMENT = "placement"
    """Check that the host has the processors and NUMA nodes that the VM's domain names."""
    EXPECT = "expect"
    """Prepare the VM's resources, and keep them for the VM."""
    GIVE = "give"
    """The VM has moved: attach its resources."""
    SEND_BACK = "send back"
    """Detach the VM's resources, and move the VM back."""
    OVER = "over"
    """The move has ended, with or without success. A connection that ends without this step means
    that the first host's driver was killed or is cut off.
    """


class Destination(Protocol):
    """The other host's part in a move."""

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """Do a step on the other host; returns the answer. Raises VicinalError, with the host's
        name.
        """


class _Connection(HostPartConnection):
    mark = MARK
    part = "the move"

    def __init__(self, call: Call, host: str) -> None:
        self._call = call
        self._owed = 0
        """Number of answers still to come, including answers to interrupted steps."""
        self._begun = False
        """Whether the answer to begin() is still to come."""
        super().__init__(host)

    def command(self) -> list[str]:
        vm = str(self._call.vm)
        script = str(self._call.script.with_name(ACTION))
        return self.reach.command(self.host.name, [script, "-", vm, self.host.name])

    def absent(self, said: str) -> tuple[str, str]:
        return (
            f"it has no driver of Vicinal ({said})",
            "run `vicinal opennebula install` on the front-end, and `onehost sync --force`",
        )

    def begin(self, step: Step, values: dict[str, Any]) -> None:
        """Start a step without waiting for its answer; if the step fails, the next do() raises its
        error.
        """
        self.tell(step, values)
        self._begun = True

    def do(self, step: Step, values: dict[str, Any]) -> dict[str, Any]:
        if self._begun:
            answer = self.hear()
            self._begun = False
            self._checked(answer)
        self._owed += 1
        self.tell(step, values)
        while self._owed:
            answer = self.hear()
            self._owed -= 1
        return self._checked(answer)

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise self._trouble(str(answer["error"]), str(answer.get("remedy")))
        return answer


class FarHost:
    """The destination, reached by ssh."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        return self._connection.do(step, values)


@contextmanager
def reached(call: Call, host: str) -> Iterator[Destination]:
    """Connect to the other host for a move. Raises VicinalError if `host` is no name of a host.

    Returns before the other host answers: a failed connection shows at the first do().
    """
    if not _HOST.fullmatch(host):
        raise VicinalError(
            f"{shown(host)} is not a host's name", "check the host's name in OpenNebula"
        )
    connection = _Connection(call, host)
    try:
        connection.begin(Step.HELLO, {"version": vicinal.__version__})
        yield FarHost(connection)
    finally:
        connection.tell(Step.OVER)
        connection.close()
