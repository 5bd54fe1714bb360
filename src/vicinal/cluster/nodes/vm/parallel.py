"""Runs several tasks in parallel, all of which must succeed."""

from collections.abc import Callable, Iterable
from queue import Queue
from threading import Thread


def run_parallel(tasks: Iterable[Callable[[], object]]) -> None:
    """Run all tasks in threads, and wait until they end.

    Raises the first error at once. The other tasks then continue until they end by themselves.
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
