"""Hosts that are killed, stopped, cut off and slow: ranks of the others go on, nothing hangs.

A host is a node of a native cluster with two ranks of tests/api/traffic.c and a region of theirs;
two hosts reach each other over tcp. Messages are numbered and checksummed, and many are under way
when it happens. Links that lose, delay or reorder are not tried here: the kernels of the machines
that run these tests have no netem. tests/unit/test_network.c does so to
frames itself.
"""

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from launch_support import GUARD_SECONDS
from test_api import library_directory
from test_death import Exchange

from vicinal import region
from vicinal.cluster.native import NativeCluster
from vicinal.cluster.native_layout import EXCHANGE, REMOTE_SHELL
from vicinal.launch.environment import provider_directory

TIMEOUT = 1.0
"""VICINAL_PEER_TIMEOUT."""
STOPPED_SECONDS = 3.0
"""A host that is gone would be missed by then."""
KILLED_SECONDS = 6.0
"""The bound that docs/network.md states for processes that end."""
SILENT_SECONDS = TIMEOUT + 5.0
"""And for hosts that are gone without a word."""
HERE, THERE = (0, 1), (2, 3)
IN_FRAMES = 60_000, 8000
READ_TOO = 200_000, 1500
"""Bytes of the longest message, and messages of each to each other. Longer ones than a frame the
receiver reads out of its sender's buffer."""


class Hosts:
    """Two hosts with two ranks each."""

    def __init__(self, program: Path, directory: Path, cluster: NativeCluster) -> None:
        self.program, self.directory, self.cluster = program, directory, cluster
        self.messages = 0
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for host in range(2):
            region.create(cluster.exchange / f"host{host}", members=4)

    def start(self, longest: int, messages: int) -> None:
        self.messages = messages
        for rank in (*HERE, *THERE):
            host = rank // 2
            variables = {
                "VICINAL_REGION": f"file:{EXCHANGE}/host{host}",
                "VICINAL_RANK": str(rank),
                "VICINAL_PEER_TIMEOUT": str(TIMEOUT),
                "FI_PROVIDER_PATH": str(provider_directory()),
                "LD_LIBRARY_PATH": str(library_directory("mpich")),
            }
            values = [self.directory, rank, 4, messages, messages, longest, 7]
            own = ["env", *(f"{name}={text}" for name, text in variables.items())]
            command = shlex.join([*own, str(self.program), *map(str, values)])
            self.processes[rank] = subprocess.Popen(
                self.cluster.head_command([REMOTE_SHELL, f"node{host}", command], Path("/")),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        deadline = time.monotonic() + GUARD_SECONDS
        while len(list(self.directory.glob("name.*"))) < 4:
            assert time.monotonic() < deadline, "not all ranks joined"
            time.sleep(0.01)
        time.sleep(0.5)  # let them talk

    def signal(self, host: int, number: signal.Signals) -> None:
        for process in self.cluster.processes(f"node{host}"):
            process.send_signal(number)
        if number is not signal.SIGSTOP:
            # nsenter stops itself when what it started stops.
            for rank in (HERE, THERE)[host]:
                started = psutil.Process(self.processes[rank].pid)
                for process in (started, *started.children(recursive=True)):
                    with suppress(psutil.Error):
                        process.send_signal(signal.SIGCONT)

    def link(self, host: int, state: str) -> None:
        self.cluster.run_in("head", ["ip", "link", "set", f"veth{host}", state])

    def finish(self, rank: int, seconds: float) -> dict[int, Exchange]:
        output, errors = self.processes.pop(rank).communicate(timeout=seconds)
        assert errors == ""
        lines = re.findall(r"^peer (\d+) sent (\d+) received (\d+) (\d+)$", output, re.M)
        return {int(line[0]): Exchange(*map(int, line)) for line in lines}

    def close(self) -> None:
        self.cluster.clear()
        for process in self.processes.values():
            # Those that stopped themselves too, and hold the pipes open.
            for started in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    started.kill()
            process.kill()
            process.communicate(timeout=GUARD_SECONDS)


@contextmanager
def stopped(checkout: Path, directory: Path, load: tuple[int, int]) -> Iterator[Hosts]:
    """Started, and then the second one stopped: what is under way between the two stays so."""
    program = checkout / "build/release/tests/api/traffic"
    with NativeCluster(nodes=2) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        hosts = Hosts(program, directory, cluster)
        try:
            hosts.start(*load)
            hosts.signal(1, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            # Their kernel answers: nobody takes them for dead.
            assert [hosts.processes[rank].poll() for rank in HERE] == [None, None]
            yield hosts
        finally:
            hosts.close()


def check_survivors(hosts: Hosts, began: float, seconds: float) -> None:
    """All between these two was right, and what was under way with others ended in an error."""
    for rank in HERE:
        exchanges = hosts.finish(rank, 4 * seconds)
        assert exchanges[1 - rank] == Exchange(1 - rank, hosts.messages, hosts.messages, 0)
        for other in THERE:
            assert exchanges[other].error != 0
            assert exchanges[other].received < hosts.messages
    took = time.monotonic() - began
    print(f"after {took:.2f} s")
    assert took < seconds


def test_the_others_go_on_when_a_host_is_killed(checkout: Path, tmp_path: Path) -> None:
    with stopped(checkout, tmp_path, READ_TOO) as hosts:
        began = time.monotonic()
        hosts.signal(1, signal.SIGKILL)
        check_survivors(hosts, began, KILLED_SECONDS)


def test_the_others_go_on_when_a_host_is_cut_off(checkout: Path, tmp_path: Path) -> None:
    """No process ends, no connection is closed, and nothing comes back: not even a refusal."""
    with stopped(checkout, tmp_path, IN_FRAMES) as hosts:
        began = time.monotonic()
        hosts.link(1, "down")
        check_survivors(hosts, began, SILENT_SECONDS)


def test_a_host_that_was_stopped_goes_on(checkout: Path, tmp_path: Path) -> None:
    """It loses nothing."""
    with stopped(checkout, tmp_path, READ_TOO) as hosts:
        hosts.signal(1, signal.SIGCONT)
        for rank in (*HERE, *THERE):
            exchanges = hosts.finish(rank, GUARD_SECONDS / 2)
            others = {*HERE, *THERE} - {rank}
            whole = hosts.messages
            assert exchanges == {other: Exchange(other, whole, whole, 0) for other in others}
