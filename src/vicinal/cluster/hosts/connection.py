"""The command's side of a host's share: a connection to the agent on that host."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import vicinal
from vicinal.base.faults import Faults
from vicinal.base.printable import printable
from vicinal.cluster.hosts.protocol import ALIVE_SECONDS, MARK, Request
from vicinal.cluster.hosts.remote.agent_connection import AgentConnection
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.plan.planning import Action


@dataclass(frozen=True)
class FarStep:
    """A step that another host does, or would do."""

    host: str
    action: Action
    piece: str
    """The key of what it is done with there."""
    why: str
    changes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """As people are shown it."""
        return f"{self.host}: {self.piece}"

    @classmethod
    def heard(cls, host: str, values: Any) -> "FarStep":
        """What an agent said. Raises ValueError or TypeError for what none of ours says."""
        action, piece, why, *changes = values
        texts = (printable(str(each)) for each in changes)
        return cls(host, Action(action), printable(str(piece)), printable(str(why)), tuple(texts))


@dataclass(frozen=True)
class Listener:
    """Who hears what is said until an answer comes."""

    show: Callable[[FarStep], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None


class ShareConnection(AgentConnection):
    """An agent on a host of a cluster, until close().

    Each question is asked by one thread; undo() may come from another.
    """

    module = "vicinal.cluster.share_agent"
    mark = MARK
    part = "the cluster"

    def __init__(self, host: str) -> None:
        super().__init__(Host(host), Reach.SSH)
        self.name = host
        self._writing = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._stay, daemon=True).start()

    def hello(self) -> dict[str, Any]:
        """What the host says of itself. Raises VicinalError where it is not reached, or another
        version."""
        return self.ask(Request.HELLO, {"version": vicinal.__version__})

    def ask(
        self,
        request: StrEnum,
        values: dict[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> dict[str, Any]:
        """The answer to a request, however long it takes, as long as the host is heard of.

        Raises VicinalError, with the host's name, for errors of its own, or where it is lost.
        """
        answer = self.ask_openly(request, values, listener)
        if "error" in answer:
            faults = Faults()
            told = [(answer["error"], answer.get("remedy")), *answer.get("more", ())]
            faults.extend(self._trouble(str(what), str(remedy)) for what, remedy in told)
            faults.check()
        return answer

    def ask_openly(
        self,
        request: StrEnum,
        values: dict[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> dict[str, Any]:
        """The same, where an error that the host says is an answer, too."""
        self.tell(request, values)
        return self.hear(listener)

    def tell(self, request: StrEnum, values: dict[str, Any] | None = None) -> None:
        """Send a request, and do not wait."""
        with self._writing:
            if not self._closed.is_set():
                self._send(json.dumps({"do": request, **(values or {})}))

    def hear(self, listener: Listener | None = None) -> dict[str, Any]:
        """The next answer. Raises VicinalError where the host is lost."""
        heard = listener or Listener()
        while True:
            message = self._message()
            try:
                if "step" in message:
                    heard.show(FarStep.heard(self.name, message["step"]))
                elif "say" in message:
                    heard.say(f"{self.name}: {printable(str(message['say']))}")
                elif "alive" not in message:
                    return message
            except (ValueError, TypeError) as error:
                raise self._trouble(
                    "it does not speak as Vicinal does", "see what runs there"
                ) from error

    def hang_up(self) -> None:
        """End the requests: what the agent is about to make is undone."""
        self._closed.set()
        with self._writing:
            super().hang_up()

    def _stay(self) -> None:
        while not self._closed.wait(ALIVE_SECONDS):
            self.tell(Request.HERE)
