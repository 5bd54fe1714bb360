"""The host that a VM moves to, as the host sees it that the VM is on: reached by ssh.

OpenNebula's own script reaches it by ssh, too (qemu+ssh). Both ends are in migrate.py. This module
loads little: the other host starts while the rest is loaded here.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.connection import ShareConnection
from vicinal.integrations.opennebula.call import Call
from vicinal.integrations.opennebula.documents import shown

MARK = "vicinal-one "
"""What answers begin with: a login may write there too."""
ACTION = "arrive"
"""Our script on the other host; OpenNebula has none of this name."""
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")


class Step(StrEnum):
    """What the other host is asked for."""

    HELLO = "hello"
    """Its version must be ours."""
    PLACE = "place"
    """Have the processors and NUMA nodes that the VM's domain names."""
    EXPECT = "expect"
    """Have there what the VM is to get, and keep it for the VM."""
    GIVE = "give"
    """The VM has moved: it gets that."""
    SEND_BACK = "send back"
    """It moves back, without that."""
    OVER = "over"
    """The move is, whatever came of it; without that word its driver was killed, or is cut off."""


class Destination(Protocol):
    """The other host's part in a move."""

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """Have a step done. Raises VicinalError, with the host's name, where it fails."""


class _Connection(ShareConnection):
    mark = MARK
    part = "the move"

    def __init__(self, call: Call, host: str) -> None:
        self._call = call
        self._owed = 0
        """Answers that have not come: of questions that were interrupted, too."""
        self._begun = False
        """Whether one more is to come, of a step that nobody waits for."""
        super().__init__(host)

    def command(self) -> list[str]:
        vm = str(self._call.vm)
        script = str(self._call.script.with_name(ACTION))
        return self.reach.command(self.host.name, [script, "-", vm, self.host.name])

    def absent(self, said: str) -> tuple[str, str]:
        return (
            f"it does not have Vicinal's driver ({said})",
            "run `vicinal opennebula install` on the front-end, and `onehost sync --force`",
        )

    def begin(self, step: Step, values: dict[str, Any]) -> None:
        """Have a step done, and do not wait: if it fails, so does the next."""
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
    """It, by ssh."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def ask(self, step: Step, **values: Any) -> dict[str, Any]:
        """See Destination.ask()."""
        return self._connection.do(step, values)


@contextmanager
def reached(call: Call, host: str) -> Iterator[Destination]:
    """The other host, until the move is over. Raises VicinalError where it has no such name.

    It starts while we go on: whether it is reached shows by its first answer.
    """
    if not _HOST.fullmatch(host):
        raise VicinalError(f"{shown(host)} is no name of a host", "see what OpenNebula calls it")
    connection = _Connection(call, host)
    try:
        connection.begin(Step.HELLO, {"version": vicinal.__version__})
        yield FarHost(connection)
    finally:
        connection.tell(Step.OVER)
        connection.close()
