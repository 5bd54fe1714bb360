"""The agents of several hosts, asked at the same time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Generic, TypeVar

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.cluster.hosts.connection import FarStep, Listener, ShareConnection

T = TypeVar("T")

UNDO_SECONDS = 120.0
"""For an agent to take away what it made."""


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
    heard: Queue[Callable[[], object] | None] = Queue()
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
        Thread(target=ask, args=(connection,), daemon=True).start()
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
