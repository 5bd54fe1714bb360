"""Hosts that are killed, stopped and cut off, and bad links: other hosts continue, nothing hangs.

A host is a node of an ephemeral cluster with two ranks of tests/api/traffic.c and its own region.
Two hosts reach each other over tcp. Messages are numbered and have checksums, and many are in
progress when the fault happens. The kernels of the machines that run these tests have no netem.
Queues that these kernels have make the links slow, lossy and out of order.
"""

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from launch_support import GUARD_SECONDS
from libfabric_support import library_directory
from process_support import named, signal_all
from test_death import Exchange

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE, REMOTE_SHELL
from vicinal.mpi.environment import provider_directory

TIMEOUT = 1.0
"""VICINAL_PEER_TIMEOUT."""
DOWN_SECONDS = 0.3
PATIENT_TIMEOUT = 3600.0
"""A timeout that ends no test: faults must be detected without it."""
STOPPED_SECONDS = 3.0
"""If a host were gone, this time would be enough to notice."""
PAIRS = 4
"""The pairs of a rank on this host and a rank on the other."""
QUESTIONS = 4
"""UDP datagrams that a rank sends to one peer until the peer's host says that the peer has
ended: after 0.5 s of silence, and then after 1, 2 and 4 s. docs/explanation/network.md calls
that 6 s.
"""
HERE, THERE = (0, 1), (2, 3)
IN_FRAMES = 60_000, 5000
FEWER = 60_000, 500
READ_TOO = 200_000, 1000
"""Bytes of the longest message, and messages of each rank to each other rank. A message longer
than a frame is read by the receiver out of its sender's buffer.
"""


class Hosts:
    """Two hosts with two ranks each."""

    def __init__(self, program: Path, directory: Path, cluster: EphemeralCluster) -> None:
        self.program, self.directory, self.cluster = program, directory, cluster
        self.messages = 0
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for host in range(2):
            region.create(cluster.exchange / f"host{host}", members=4)

    def start(self, longest: int, messages: int, timeout: float = TIMEOUT) -> None:
        self.messages = messages
        for rank in (*HERE, *THERE):
            host = rank // 2
            variables = {
                "VICINAL_REGION": f"file:{EXCHANGE}/host{host}",
                "VICINAL_RANK": str(rank),
                "VICINAL_PEER_TIMEOUT": str(timeout),
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
        while len(list(self.directory.glob("talks.*"))) < 4:
            assert time.monotonic() < deadline, "not all ranks talk"
            time.sleep(0.01)

    def signal(self, host: int, number: signal.Signals) -> None:
        signal_all(self.cluster.processes(f"node{host}"), number)
        if number is not signal.SIGSTOP:
            # nsenter stops itself when its child stops.
            for rank in {*(HERE, THERE)[host]} & self.processes.keys():
                with suppress(psutil.NoSuchProcess):  # it has ended
                    started = psutil.Process(self.processes[rank].pid)
                    family = [started, *started.children(recursive=True)]
                    signal_all(family, signal.SIGCONT)

    def ranks(self, host: int) -> list[psutil.Process]:
        """The processes of a host's ranks."""
        return named(self.cluster.processes(f"node{host}"), self.program.name)

    @staticmethod
    def rank_of(process: psutil.Process) -> int:
        return int(process.cmdline()[2])

    def await_all(self) -> None:
        """Wait until all ranks have ended. Their output is still to be read."""
        deadline = time.monotonic() + GUARD_SECONDS
        while any(process.poll() is None for process in self.processes.values()):
            assert time.monotonic() < deadline, "not all ranks ended"
            time.sleep(0.02)

    def link(self, host: int, state: str) -> None:
        self.cluster.run_in("head", ["ip", "link", "set", f"veth{host}", state])

    def flap(self, host: int, seconds: float) -> None:
        """Take the host's link down and up by one command, because starting a second takes time."""
        down, up = (f"ip link set veth{host} {state}" for state in ("down", "up"))
        self.cluster.run_in("head", ["sh", "-c", f"{down} && sleep {seconds} && {up}"])

    def finish(self, rank: int) -> dict[int, Exchange]:
        output, errors = self.processes.pop(rank).communicate(timeout=GUARD_SECONDS)
        assert errors == ""
        lines = re.findall(r"^peer (\d+) sent (\d+) received (\d+) (\d+)$", output, re.M)
        return {int(line[0]): Exchange(*map(int, line)) for line in lines}

    def tc(self, host: int, text: str) -> str:
        """The output of a `tc` command for the host's network card."""
        return self.cluster.run_in(f"node{host}", ["tc", *text.split()])

    def counter(self, host: int, group: str, name: str) -> int:
        """One of the counters of a protocol that a host's kernel keeps."""
        text = self.cluster.run_in(f"node{host}", ["cat", "/proc/net/netstat", "/proc/net/snmp"])
        lines = [line.split() for line in text.splitlines() if line.startswith(f"{group}:")]
        return int(dict(zip(*lines, strict=True))[name])

    def close(self) -> None:
        # A stopped process cannot end in good order, and would be waited for.
        for host in range(2):
            self.signal(host, signal.SIGCONT)
        self.cluster.clear()
        for process in self.processes.values():
            # Also kill the processes that stopped themselves, which hold the pipes open.
            for started in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    started.kill()
            process.kill()
            process.communicate(timeout=GUARD_SECONDS)


@contextmanager
def running(
    checkout: Path,
    directory: Path,
    load: tuple[int, int],
    prepare: Callable[[Hosts], None] = lambda _: None,
    timeout: float = TIMEOUT,
) -> Iterator[Hosts]:
    program = checkout / "build/release/tests/api/traffic"
    with EphemeralCluster(nodes=2) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        hosts = Hosts(program, directory, cluster)
        try:
            prepare(hosts)
            hosts.start(*load, timeout)
            yield hosts
        finally:
            hosts.close()


@contextmanager
def stopped(
    checkout: Path, directory: Path, load: tuple[int, int], timeout: float = TIMEOUT
) -> Iterator[Hosts]:
    """Running hosts. The second is then stopped, with messages between both in progress."""
    with running(checkout, directory, load, timeout=timeout) as hosts:
        hosts.signal(1, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        # The second host's kernel still answers, so the ranks do not count as dead.
        assert [hosts.processes[rank].poll() for rank in HERE] == [None, None]
        yield hosts


def check_survivors(hosts: Hosts) -> None:
    """Check the ranks here: exchanges between them are whole, and others ended in an error.

    A pair that had finished before the fault has no error, but not all pairs may have finished.
    """
    cut = 0
    for rank in HERE:
        exchanges = hosts.finish(rank)
        assert exchanges[1 - rank] == Exchange(1 - rank, hosts.messages, hosts.messages, 0)
        for other in THERE:
            if exchanges[other] != Exchange(other, hosts.messages, hosts.messages, 0):
                assert exchanges[other].error != 0
                assert exchanges[other].received < hosts.messages
                cut += 1
    assert cut > 0, "all was done before it happened"


def test_the_others_go_on_when_a_host_is_killed(checkout: Path, tmp_path: Path) -> None:
    """Its kernel answers after a few questions that the ranks have ended. No timeout passes."""
    with stopped(checkout, tmp_path, READ_TOO, PATIENT_TIMEOUT) as hosts:
        asked, answers = (
            hosts.counter(0, "Udp", "OutDatagrams"),
            hosts.counter(0, "Icmp", "InDestUnreachs"),
        )
        hosts.signal(1, signal.SIGKILL)
        check_survivors(hosts)
        asked = hosts.counter(0, "Udp", "OutDatagrams") - asked
        answers = hosts.counter(0, "Icmp", "InDestUnreachs") - answers
        print(f"asked {asked} times, {answers} answers")
        assert answers <= asked <= PAIRS * QUESTIONS


def test_the_others_go_on_when_a_host_is_cut_off(checkout: Path, tmp_path: Path) -> None:
    """No process ends, no connection is closed, and nothing comes back, not even a refusal."""
    with stopped(checkout, tmp_path, IN_FRAMES) as hosts:
        began = time.monotonic()
        hosts.link(1, "down")
        check_survivors(hosts)
        assert time.monotonic() - began >= TIMEOUT


def check_all(hosts: Hosts) -> None:
    """Check that every message arrived once, in order and unchanged."""
    for rank in (*HERE, *THERE):
        exchanges = hosts.finish(rank)
        others = {*HERE, *THERE} - {rank}
        whole = hosts.messages
        assert exchanges == {other: Exchange(other, whole, whole, 0) for other in others}


@pytest.mark.parametrize("flaps", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_host_that_was_stopped_goes_on(checkout: Path, tmp_path: Path, flaps: bool) -> None:
    """The host loses nothing, even if its link was down meanwhile for less than the timeout.

    The kernels send pending data when their timers expire. A stop doubles these timers each time,
    so after a long stop this takes seconds.
    """
    timeout = PATIENT_TIMEOUT if flaps else TIMEOUT
    with stopped(checkout, tmp_path, READ_TOO, timeout) as hosts:
        if flaps:
            hosts.flap(1, DOWN_SECONDS)
        hosts.signal(1, signal.SIGCONT)
        check_all(hosts)


def test_ranks_that_are_stopped_and_killed_one_by_one(checkout: Path, tmp_path: Path) -> None:
    """Their neighbour continues with the remaining ranks."""
    with running(checkout, tmp_path, IN_FRAMES, timeout=PATIENT_TIMEOUT) as hosts:
        one, other = hosts.ranks(1)
        gone = hosts.rank_of(other)
        one.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        other.send_signal(signal.SIGSTOP)
        one.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        other.send_signal(signal.SIGKILL)
        missed = []
        for rank in {*HERE, *THERE} - {gone}:
            exchanges = hosts.finish(rank)
            failed = [peer for peer, each in exchanges.items() if each.error != 0]
            # The rank may have exchanged all messages with the other before the kill.
            whole = exchanges[gone] == Exchange(gone, hosts.messages, hosts.messages, 0)
            assert failed == ([] if whole else [gone])
            missed += failed
        assert missed


# --- bad links -----------------------------------------------------------------------------


def slow(hosts: Hosts, host: int) -> None:
    """A link some fifty times slower than between cores, with a queue that delays."""
    hosts.tc(host, "qdisc add dev eth0 root tbf rate 60mbit burst 64kb latency 40ms")


def lossy(hosts: Hosts, host: int) -> None:
    """A queue that is too short for bursts."""
    hosts.tc(host, "qdisc add dev eth0 root tbf rate 60mbit burst 4kb limit 12kb")


def reordered(hosts: Hosts, host: int) -> None:
    """Every second packet takes a slower path."""
    # Otherwise several packets go as one.
    hosts.cluster.run_in(f"node{host}", ["ip", "link", "set", "eth0", "gso_max_segs", "1"])
    hosts.tc(host, "qdisc add dev eth0 root handle 1: htb default 1")
    hosts.tc(host, "class add dev eth0 parent 1: classid 1:1 htb rate 400mbit")
    hosts.tc(host, "class add dev eth0 parent 1: classid 1:2 htb rate 60mbit burst 4kb cburst 4kb")
    # The lowest bit of the number in the packet's header decides.
    every_second = "u32 match u16 0x0001 0x0001 at 4"
    hosts.tc(host, f"filter add dev eth0 parent 1: protocol ip {every_second} flowid 1:2")


@pytest.mark.parametrize("spoil", [slow, lossy, reordered])
def test_a_bad_link(checkout: Path, tmp_path: Path, spoil: Callable[[Hosts, int], None]) -> None:
    """All messages arrive unchanged, and no peer counts as dead."""

    def spoil_both(hosts: Hosts) -> None:
        for host in range(2):
            spoil(hosts, host)

    with running(checkout, tmp_path, FEWER, spoil_both) as hosts:
        hosts.await_all()
        said = hosts.tc(0, "-s qdisc show dev eth0")
        dropped = sum(map(int, re.findall(r"dropped (\d+)", said)))
        late = hosts.counter(1, "TcpExt", "TCPOFOQueue")
        print(f"{spoil.__name__}: {dropped} packets were dropped, {late} came out of order")
        if spoil is lossy:
            assert dropped > 10
        if spoil is reordered:
            assert dropped == 0
            assert late > 100
        check_all(hosts)
