"""A running Slurm of each usual kind, for all tests that need no special one."""

import time
from contextlib import ExitStack
from typing import TypeVar, cast

from slurm_option_support import OptionHosts

Kind = TypeVar("Kind", bound=OptionHosts)

_SETTLE_SECONDS = 5.0
"""Slurm needs a moment from the end of a job until its hosts are idle."""


class SharedHosts:
    """Hosts by their kind. If a test left hosts in disorder, they are started anew."""

    def __init__(self) -> None:
        self._opened: dict[type[OptionHosts], tuple[ExitStack, OptionHosts]] = {}

    def get(self, kind: type[Kind]) -> Kind:
        if kind in self._opened and not _in_order(self._opened[kind][1]):
            self._opened.pop(kind)[0].close()
        if kind not in self._opened:
            stack = ExitStack()
            hosts = stack.enter_context(kind.opened())
            self._opened[kind] = stack, hosts
            work = hosts.directory / "work"
            work.mkdir()
            work.chmod(0o1777)
        return cast("Kind", self._opened[kind][1])

    def close(self) -> None:
        while self._opened:
            self._opened.popitem()[1][0].close()


def _in_order(hosts: OptionHosts) -> bool:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not hosts.in_order():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
