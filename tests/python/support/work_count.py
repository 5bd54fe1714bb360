"""How much work something is, counted and not timed: the same on every machine."""

import cProfile
from collections.abc import Callable


def calls_of(action: Callable[[], object]) -> int:
    """The calls of functions that an action makes, of Python's and of those written in C.

    What NumPy does to a whole array is one call, so work that is done value by value shows, and so
    does work that grows with a square. Generators count each time that they go on.
    """
    profile = cProfile.Profile()
    profile.runcall(action)
    return sum(each.callcount for each in profile.getstats())
