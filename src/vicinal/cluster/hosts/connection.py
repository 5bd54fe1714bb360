"""What a command and the agents of hosts say to each other: lines of JSON.

A request has `do`, one of Request. Until its answer comes, an agent says `step` and `say` for
people, and `alive` every few seconds, so that a host that is lost is noticed however long its work
takes. A command says HERE as often, for the same reason.

The agent's side is Requests and Answers. The command's side is ShareConnection, to one host;
connected() and ask_all() ask several hosts at the same time.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.printable import printable
from vicinal.cluster.hosts.remote.agent_connection import AgentConnection
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.cluster.hosts.remote.reach import Reach
from vicinal.cluster.plan.planning import Action

MARK = "vicinal-cluster "
"""What the agents' lines begin with: a login may write there too."""

ALIVE_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""An agent that has heard nothing for so long takes the command for lost."""
_LONGEST_REQUEST = 16 << 20
T = TypeVar("T")

UNDO_SECONDS = 120.0
"""For an agent to take away what it made."""


class Request(StrEnum):
    """What a command can ask of a host."""

    HELLO = "hello"
    """Who it is; its version must be the command's."""
    PLAN = "plan"
    """What `up` would do with its share."""
    UP = "up"
    """Make its share, say `made`, and wait for KEEP: without it all is undone."""
    KEEP = "keep"
    UNDO = "undo"
    """Also while it is being made."""
    DOWN = "down"
    START = "start"
    STOP = "stop"
    STATE = "state"
    """What there is of its share."""
    ENTER = "enter"
    """Get into its machines for a job; their region must have room for so many ranks."""
    CHECK = "check"
    """Whether they still run."""
    TRAFFIC = "traffic"
    """What their region says of the job of a number."""
    MOVE = "move"
    """A step in the move of a machine to another host, or from it: moving.MoveStep."""
    SAVE = "save"
    """A step in saving all machines, or in letting them go on: saving.SaveStep."""
    HERE = "here"
    """Nothing: the command is there. It has no answer."""


class Requests:
    """What comes on stdin, line by line; read by a thread, so that it is heard during the work."""

    def __init__(self) -> None:
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._making = False
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """The next request; None at the end, and when nothing was heard for long."""
        while True:
            try:
                found = self._lines.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                return None
            if found is None or found.get("do") != Request.HERE:
                return found

    def making(self, begun: bool) -> None:
        """While something is being made, the end of requests and UNDO end this process's work."""
        with self._lock:
            self._making = begun

    def _read(self) -> None:
        with suppress(OSError, ValueError), os.fdopen(0, "rb", closefd=False) as lines:
            while line := lines.readline(_LONGEST_REQUEST):
                request = json.loads(line)
                self._lines.put(request)
                if request.get("do") == Request.UNDO:
                    self._end()
        self._lines.put(None)
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._making:
                os.kill(os.getpid(), signal.SIGTERM)


class Answers:
    """What goes to the command, by the present stdout; it hears that we live during all work."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._stream = sys.stdout
        self._speaking = threading.Lock()
        threading.Thread(target=self._live, daemon=True).start()

    def say(self, **message: Any) -> None:
        """Say it."""
        # Whoever does not hear us is gone: what was made is undone, by the end of the requests.
        with self._speaking, suppress(BrokenPipeError):
            self._stream.write(f"{self._mark}{json.dumps(message)}\n")
            self._stream.flush()

    def _live(self) -> None:
        tick = threading.Event()
        with suppress(OSError, ValueError):
            while not tick.wait(ALIVE_SECONDS):
                self.say(alive=True)


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


@contextmanager
def connected(hosts: Sequence[str]) -> Iterator[list[ShareConnection]]:
    """An agent on each host; none of them was asked anything yet.

    At the end of the `with` statement they end, and undo what they made and nobody wants kept.
    """
    opened: list[ShareConnection] = []
    try:
        for host in hosts:
            opened.append(ShareConnection(host))
        yield opened
    finally:
        for connection in opened:
            connection.hang_up()
        for connection in opened:
            connection.close(UNDO_SECONDS)


class Outcomes(Generic[T]):
    """What came of asking several hosts."""

    def __init__(self) -> None:
        self.answers: dict[str, T] = {}
        self.errors: dict[str, VicinalError] = {}

    def all(self) -> dict[str, T]:
        """The answers. Raises the error, or errors, of all hosts that had some."""
        if len(self.errors) == 1:
            raise next(iter(self.errors.values()))  # whatever kind it is of
        faults = Faults()
        for error in self.errors.values():
            faults.extend(error.each)
        faults.check()
        return self.answers


def ask_all(
    connections: Sequence[ShareConnection],
    work: Callable[[ShareConnection, Listener], T],
    show: Callable[[FarStep], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcomes[T]:
    """Do something with each host, in a thread for each, and wait for all of them.

    `show` and `say` hear what hosts say meanwhile; they are called by this thread alone.
    """
    outcomes: Outcomes[T] = Outcomes()
    heard: queue.Queue[Callable[[], object] | None] = queue.Queue()
    listener = Listener(
        lambda step: heard.put(lambda: show(step)), lambda text: heard.put(lambda: say(text))
    )

    def ask(connection: ShareConnection) -> None:
        try:
            outcomes.answers[connection.name] = work(connection, listener)
        except VicinalError as error:
            outcomes.errors[connection.name] = error
        finally:
            heard.put(None)

    for connection in connections:
        threading.Thread(target=ask, args=(connection,), daemon=True).start()
    left = len(connections)
    while left:
        something = heard.get()
        if something is None:
            left -= 1
        else:
            something()
    order = [connection.name for connection in connections]
    outcomes.errors = {name: outcomes.errors[name] for name in order if name in outcomes.errors}
    return outcomes
