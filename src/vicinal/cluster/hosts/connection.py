"""The protocol between a command and the agents of hosts: lines of JSON.

A request has the field `do`, one of Request. Before its answer, an agent sends `step` and `say`
messages for people, and `alive` every 5 s, so that the command notices a lost host during long
work. A command sends HERE every 5 s, for the same reason.

The agent's side is Requests and Answers. The command's side is HostPartConnection for one host;
connected() and ask_all() use several hosts at the same time.
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
"""Start of an agent's lines, because login scripts may write to the same stream."""

ALIVE_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""After this time without a line, an agent assumes that the command is lost."""
_LONGEST_REQUEST = 16 << 20
T = TypeVar("T")

UNDO_SECONDS = 120.0
"""Time for an agent to remove what it created."""


class Request(StrEnum):
    """The requests of a command to a host's agent."""

    HELLO = "hello"
    """Return facts about the host; its version of Vicinal must be the command's."""
    PLAN = "plan"
    """Return the steps of `up` for the part."""
    UP = "up"
    """Create the part, answer `made`, and wait for KEEP; without KEEP, undo everything."""
    KEEP = "keep"
    UNDO = "undo"
    """Undo the part, even during its creation."""
    DOWN = "down"
    START = "start"
    STOP = "stop"
    STATE = "state"
    """Return the state of the part."""
    ENTER = "enter"
    """Connect to the nodes for a job; their region must have room for the given number of ranks."""
    CHECK = "check"
    """Check that the nodes still run."""
    TRAFFIC = "traffic"
    """Return what the nodes' region counts of a job."""
    MOVE = "move"
    """Execute a step of a VM's move to or from another host: moving.MoveStep."""
    SAVE = "save"
    """Execute a step of saving or restoring all VMs: saving.SaveStep."""
    HERE = "here"
    """The command still runs. This request has no answer."""


class Requests:
    """The requests on stdin, which a thread reads line by line, even while the agent works."""

    def __init__(self) -> None:
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._making = False
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """Return the next request; None at the end of input, and after 60 s without a line."""
        while True:
            try:
                found = self._lines.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                return None
            if found is None or found.get("do") != Request.HERE:
                return found

    def making(self, begun: bool) -> None:
        """Set whether the end of input, or UNDO, interrupts this process by SIGTERM."""
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
    """The answers to the command on the present stdout, with an `alive` message every 5 s."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._stream = sys.stdout
        self._speaking = threading.Lock()
        threading.Thread(target=self._live, daemon=True).start()

    def say(self, **message: Any) -> None:
        """Send a message."""
        # If the command is gone, the end of the requests undoes what was created.
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
    """A step of another host, executed or planned."""

    host: str
    action: Action
    piece: str
    """The resource's key on the host."""
    why: str
    changes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """HOST: KEY, for people."""
        return f"{self.host}: {self.piece}"

    @classmethod
    def heard(cls, host: str, values: Any) -> "FarStep":
        """Return the step in an agent's message. Raises ValueError or TypeError if malformed."""
        action, piece, why, *changes = values
        texts = (printable(str(each)) for each in changes)
        return cls(host, Action(action), printable(str(piece)), printable(str(why)), tuple(texts))


@dataclass(frozen=True)
class Listener:
    """Callbacks for an agent's messages before its answer."""

    show: Callable[[FarStep], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None


class HostPartConnection(AgentConnection):
    """A connection to the agent on a host of a cluster, until close().

    One thread at a time sends requests that have answers; another thread may call tell().
    """

    module = "vicinal.cluster.host_part_agent"
    mark = MARK
    part = "the cluster"

    def __init__(self, host: str) -> None:
        super().__init__(Host(host), Reach.SSH)
        self.name = host
        self._writing = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._stay, daemon=True).start()

    def hello(self) -> dict[str, Any]:
        """Return facts about the host.

        Raises VicinalError if the host is not reached or has another version of Vicinal.
        """
        return self.ask(Request.HELLO, {"version": vicinal.__version__})

    def ask(
        self,
        request: StrEnum,
        values: dict[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> dict[str, Any]:
        """Send a request; return its answer, without a time limit while the host sends messages.

        Raises VicinalError, with the host's name, for the host's errors and for a lost host.
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
        """Send a request; return its answer, which may be the host's error."""
        self.tell(request, values)
        return self.hear(listener)

    def tell(self, request: StrEnum, values: dict[str, Any] | None = None) -> None:
        """Send a request without waiting for the answer."""
        with self._writing:
            if not self._closed.is_set():
                self._send(json.dumps({"do": request, **(values or {})}))

    def hear(self, listener: Listener | None = None) -> dict[str, Any]:
        """Return the next answer. Raises VicinalError if the host is lost."""
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
                    "its agent's answer is malformed", "check which Vicinal is installed there"
                ) from error

    def hang_up(self) -> None:
        """End the requests; the agent undoes what it is creating."""
        self._closed.set()
        with self._writing:
            super().hang_up()

    def _stay(self) -> None:
        while not self._closed.wait(ALIVE_SECONDS):
            self.tell(Request.HERE)


@contextmanager
def connected(hosts: Sequence[str]) -> Iterator[list[HostPartConnection]]:
    """Start an agent on each host, and yield the connections.

    At the end of the `with` statement the agents end, and undo what the command has not kept.
    """
    opened: list[HostPartConnection] = []
    try:
        for host in hosts:
            opened.append(HostPartConnection(host))
        yield opened
    finally:
        for connection in opened:
            connection.hang_up()
        for connection in opened:
            connection.close(UNDO_SECONDS)


class Outcomes(Generic[T]):
    """The answers and errors of several hosts, by host."""

    def __init__(self) -> None:
        self.answers: dict[str, T] = {}
        self.errors: dict[str, VicinalError] = {}

    def all(self) -> dict[str, T]:
        """Return the answers. Raises the error, or all errors as one, if hosts have any."""
        if len(self.errors) == 1:
            raise next(iter(self.errors.values()))  # keeps the error's class
        faults = Faults()
        for error in self.errors.values():
            faults.extend(error.each)
        faults.check()
        return self.answers


def ask_all(
    connections: Sequence[HostPartConnection],
    work: Callable[[HostPartConnection, Listener], T],
    show: Callable[[FarStep], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcomes[T]:
    """Call `work` for each host in a thread of its own, and wait for all.

    `show` and `say` get the hosts' messages; only the calling thread calls them.
    """
    outcomes: Outcomes[T] = Outcomes()
    heard: queue.Queue[Callable[[], object] | None] = queue.Queue()
    listener = Listener(
        lambda step: heard.put(lambda: show(step)), lambda text: heard.put(lambda: say(text))
    )

    def ask(connection: HostPartConnection) -> None:
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
