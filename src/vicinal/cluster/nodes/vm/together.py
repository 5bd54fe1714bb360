"""Several things done at the same time, all of which must succeed."""

from collections.abc import Callable, Iterable
from queue import Queue
from threading import Thread


def together(tasks: Iterable[Callable[[], object]]) -> None:
    """Do all of them at once, and wait until they are done.

    Raises the first error at once; what others do then goes on until it ends by itself.
    """
    outcomes: Queue[BaseException | None] = Queue()

    def work(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    threads = [Thread(target=work, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for _ in threads:
        error = outcomes.get()
        if error is not None:
            raise error
