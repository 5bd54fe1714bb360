"""Nodes of a job on several hosts have a network that excludes other jobs and hosts."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from launch_support import GUARD_SECONDS, NOBODY
from process_support import name_of, parent_of, signal_all
from slurm_option_support import OptionHosts, become, wait_until

from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm import checks, job_network
from vicinal.integrations.slurm.defaults import NETWORK_PORT

LONG = pytest.mark.long
USER = 1
FILE = "name: lab\nnodes:\n  - {name: node, count: 4}\nregion: {members: 16}\n"
HOSTILE = """
import os, socket
path = os.path.dirname(__file__) + "/sent"
if os.path.exists(path):
    with open(path) as file:
        sent = os.open(file.read(), os.O_RDONLY)
    socket.send_fds(socket.socket(fileno=3), [b"n"], [sent])
"""
"""What a supervisor runs first if told so. Its user could make the supervisor do anything."""


class NetworkHosts(OptionHosts):
    """Two hosts, and what jobs' networks leave on them."""

    def installed(self) -> tuple[object, ...]:
        directory = self.directory / "hostile"
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(HOSTILE)
        options = super().installed()
        script = self.directory / "python"
        script.write_text(script.read_text().replace("PYTHONPATH=", f"PYTHONPATH={directory}:"))
        return options

    @contextmanager
    def sending(self, path: object) -> Iterator[None]:
        """Let supervisors send this file instead of their nodes' network."""
        sent = self.directory / "hostile/sent"
        sent.write_text(str(path))
        yield
        sent.unlink()

    def ports(self, name: str) -> list[str]:
        """The sockets that listen for jobs' networks on a host."""
        return self.cluster.run_in(name, ["ss", "-Hlun", f"sport = :{NETWORK_PORT}"]).splitlines()

    def holders(self) -> list[psutil.Process]:
        """The processes that hold networks of jobs, on all hosts."""
        supervisors = {each.pid for name in self.names for each in self.supervisors(name)}
        found = [each for each in psutil.process_iter() if name_of(each) == "job-network"]
        return [each for each in found if parent_of(each) in supervisors]

    def nothing_left(self) -> bool:
        return super().nothing_left() and not any(map(self.ports, self.names))


class SharingHosts(OptionHosts):
    """Two hosts on which an administrator lets nodes have the hosts' network."""

    def installed(self) -> tuple[object, ...]:
        return (*super().installed(), "--host-network")


@pytest.fixture(scope="module")
def hosts() -> Iterator[NetworkHosts]:
    with NetworkHosts.opened() as opened:
        opened.cluster_file("four.yaml", FILE)
        yield opened


@pytest.fixture
def clean(hosts: NetworkHosts) -> Iterator[NetworkHosts]:
    """Hosts without traces of jobs before and after the test."""
    with hosts.clean():
        yield hosts


def step(hosts: OptionHosts, *options: str, user: int = USER) -> tuple[str, ...]:
    """The beginning of a command line that runs tasks in nodes on both hosts."""
    value = f"--vicinal={hosts.directory}/four.yaml"
    return (*become(user), "srun", value, "--chdir=/", "-N2", *options)


# --- what nodes see ------------------------------------------------------------------------


SEEN = """
import json, os, socket, subprocess
ip = lambda *words: json.loads(subprocess.check_output(["ip", "-j", *words]))
(link,) = ip("address", "show", "dev", "eth0")
(address,) = (each["local"] for each in link["addr_info"])
names = [socket.gethostbyname(f"node{number}") for number in range(4)]
print(socket.gethostname(), address, link["mtu"], len(ip("route")), *names)
"""


@pytest.mark.parametrize("user", [pytest.param(0, marks=LONG), USER])
def test_nodes_have_addresses_in_one_network_over_their_hosts(
    clean: NetworkHosts, user: int
) -> None:
    """Frames fit into the frames of the hosts' network, and every node knows every name."""
    result = clean.at_head(*step(clean, "--ntasks-per-node=2", user=user), "python3", "-c", SEEN)
    names = " ".join(f"10.0.0.{number + 1}" for number in range(4))
    assert sorted(result.stdout.splitlines()) == [
        f"node{number} 10.0.0.{number + 1} {1500 - 50} 1 {names}" for number in range(4)
    ], result.stderr


LISTEN = """
import socket
with socket.create_server(("", 7777)) as server:
    print("listens", flush=True)
    while True:
        with server.accept()[0] as peer:
            while data := peer.recv(1 << 16):
                peer.sendall(data)
"""
ASK = """
import os, socket, sys
sent = os.urandom(1 << 20)
for name in sys.argv[1:]:
    try:
        with socket.create_connection((name, 7777), timeout=5) as peer:
            peer.sendall(sent[:100])
            assert peer.recv(100) == sent[:100]
            for at in range(0, len(sent), 1 << 16):
                part = sent[at : at + (1 << 16)]
                peer.sendall(part)
                got = b""
                while len(got) < len(part):
                    got += peer.recv(len(part))
                assert got == part
        print(name, "yes")
    except OSError:
        print(name, "no")
"""
NODES = [f"node{number}" for number in range(4)]


@contextmanager
def listening(hosts: NetworkHosts, *command: str, servers: int) -> Iterator[None]:
    """A step whose tasks listen. Each task must say so before the test continues."""
    with subprocess.Popen(
        hosts.entered([*command, "python3", "-c", LISTEN]),
        env=hosts.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            assert [running.stdout.readline() for _ in range(servers)] == ["listens\n"] * servers
            yield
        finally:
            assert hosts.at_head("scancel", "--name=answers").returncode == 0
            running.communicate(timeout=GUARD_SECONDS)


@pytest.mark.parametrize(
    "users",
    [
        pytest.param((USER, NOBODY), marks=LONG),
        (USER, USER),
        pytest.param((0, USER), marks=LONG),
    ],
)
def test_two_jobs_on_the_same_hosts_do_not_reach_each_other(
    clean: NetworkHosts, users: tuple[int, int]
) -> None:
    """The nodes of both jobs have the same names and addresses. Each job's nodes are connected."""
    job = ("--job-name=answers", "--ntasks-per-node=2", "--overlap")
    with listening(clean, *step(clean, *job, user=users[0]), servers=4):
        number = clean.at_head("squeue", "-h", "--name=answers", "--format=%A").stdout.strip()
        same = ("-n4", "-O", f"--jobid={number}", "--overlap")
        own = step(clean, *same, user=users[0])
        result = clean.at_head(*own, "python3", "-c", ASK, *NODES)
        said = sorted(result.stdout.splitlines())
        assert said == sorted([f"{name} yes" for name in NODES] * 4), result.stderr
        other = step(clean, "--ntasks-per-node=1", user=users[1])
        result = clean.at_head(*other, "python3", "-c", ASK, *NODES)
        said = sorted(result.stdout.splitlines())
        assert said == sorted([f"{name} no" for name in NODES] * 2), result.stderr


@pytest.mark.long
def test_nodes_do_not_reach_their_hosts(clean: NetworkHosts) -> None:
    """Nodes do not reach tasks without nodes either, because those are in the hosts' network."""
    job = ("srun", "-N2", "-n2", "--chdir=/", "--job-name=answers")
    with listening(clean, *become(USER), *job, servers=2):
        result = clean.at_head("srun", "-N2", "-n2", "python3", "-c", ASK, "node0", "node1")
        assert set(result.stdout.splitlines()) == {"node0 yes", "node1 yes"}, result.stderr
        result = clean.at_head(*step(clean, "--ntasks-per-node=1"), "python3", "-c", ASK, *NODES)
        assert set(result.stdout.splitlines()) == {f"{name} no" for name in NODES}, result.stderr


@pytest.mark.long
def test_an_administrator_may_let_nodes_have_the_network_of_their_hosts() -> None:
    with SharingHosts.opened() as sharing, sharing.clean():
        sharing.cluster_file("four.yaml", FILE)
        result = sharing.at_head(*step(sharing, "--ntasks-per-node=2"), "cat", "/proc/net/fib_trie")
        assert result.returncode == 0, result.stderr
        # The node sees the addresses of the hosts, and not those of other nodes.
        found = {word for word in result.stdout.split() if word.startswith("10.0.0.")}
        assert {"10.0.0.1", "10.0.0.2"} <= found
        assert "10.0.0.3" not in found


# --- ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "killed", [pytest.param("supervisors", marks=LONG), "what holds the network"]
)
def test_nothing_is_left_of_a_network_whatever_was_killed(clean: NetworkHosts, killed: str) -> None:
    job = ("--job-name=answers", "--ntasks-per-node=2")
    with listening(clean, *step(clean, *job), servers=4):
        assert all(map(clean.ports, clean.names))
        (one, two) = clean.holders()
        assert one.uids() == two.uids() == (0, 0, 0)
        supervisors = [each for name in clean.names for each in clean.supervisors(name)]
        signal_all(supervisors if killed == "supervisors" else [one, two], signal.SIGKILL)
        wait_until(lambda: not any(map(clean.ports, clean.names)))


# --- what `check` finds --------------------------------------------------------------------


def test_check_says_what_networks_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake `sinfo` lists two hosts, one of which has no address."""
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho near 192.0.2.1\necho far 127.0.1.1\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    lines = [found.line for found in checks.check_network(tmp_path / "slurm.conf")]
    if os.geteuid() == 0:
        assert lines[0] == "ok: the kernel has VXLAN"
    assert lines[-1].startswith("note: these hosts have no usable address: far (other hosts cannot")
    sinfo.write_text("#!/bin/sh\necho near 192.0.2.1\n")
    lines = [found.line for found in checks.check_network(tmp_path / "slurm.conf")]
    assert lines[-1] == "ok: all hosts have addresses"


# --- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["network of the host", pytest.param("file", marks=LONG)])
def test_a_network_that_is_not_its_user_s_gets_no_cable(clean: NetworkHosts, what: str) -> None:
    """Root receives a file from the supervisor, whose user could make it send any file."""
    path = "/proc/self/ns/net" if what == "network of the host" else clean.slurm_conf
    with clean.sending(path):
        result = clean.at_head(*step(clean, "--ntasks-per-node=1"), "true")
    assert result.returncode != 0
    assert "the network of the nodes was not created by the job's user" in result.stderr
    for name in clean.names:
        assert "uplink" not in clean.cluster.run_in(name, ["ip", "link"])


@pytest.mark.long
def test_a_number_of_a_network_that_is_in_use(clean: NetworkHosts) -> None:
    """Two networks with one number would be one network."""
    first = clean.waiting_job(user=USER)
    device = ["ip", "link", "add", "other", "type", "vxlan"]
    device += ["id", str(int(first) + 1), "dstport", str(NETWORK_PORT)]
    clean.cluster.run_in("node0", device)
    try:
        assert clean.at_head("scancel", first).returncode == 0
        result = clean.at_head(*step(clean, "--ntasks-per-node=1"), "true")
    finally:
        clean.cluster.run_in("node0", ["ip", "link", "delete", "other"])
    assert result.returncode != 0
    assert f"a network on this host already has the number {int(first) + 1} of" in result.stderr


@pytest.mark.long
def test_a_port_that_is_in_use(clean: NetworkHosts) -> None:
    script = f'import socket; s = socket.socket(type=2); s.bind(("", {NETWORK_PORT})); input()'
    command = clean.entered(["ssh", "node1", f"python3 -c '{script}'"])
    with subprocess.Popen(
        command, env=clean.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as bound:
        wait_until(lambda: clean.ports("node1"))
        result = clean.at_head(*step(clean, "--ntasks-per-node=1"), "true")
        assert bound.stdin is not None
        bound.stdin.close()
    assert result.returncode != 0
    assert f"a process of this host uses the UDP port {NETWORK_PORT}" in result.stderr


def test_hosts_without_an_address_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VicinalError, match=r"other hosts cannot reach the host 'far' at fe80::1"):
        job_network.addresses_of("far", "fe80::1%lo")
    with pytest.raises(
        VicinalError, match=r"other hosts cannot reach the host 'far' at 127\.0\.1\.1"
    ):
        job_network.addresses_of("far", "127.0.1.1")
    monkeypatch.setattr(job_network, "ip", lambda _words: '[{"type": "local", "dev": "lo"}]')
    with pytest.raises(VicinalError, match="which is this host's own address"):
        job_network.join(7, Path("/a"), Path("/b"), {"far": "192.0.2.1"}, NETWORK_PORT)


def test_a_kernel_without_vxlan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake `ip` says that the kernel has no VXLAN. The real kernel has VXLAN."""

    def ip(arguments: list[str], **_options: object) -> str:
        if arguments[:2] == ["-j", "route"]:
            return '[{"dst": "192.0.2.1", "dev": "e0"}]'
        if arguments[:2] == ["-j", "link"]:
            return '[{"mtu": 1500}]'
        raise VicinalError("`ip -batch -` failed (Error: Unknown device type.)", "")

    monkeypatch.setattr(job_network, "ip", ip)
    with pytest.raises(VicinalError, match="has no VXLAN") as raised:
        job_network.join(7, Path("/a"), Path("/b"), {"far": "192.0.2.1"}, NETWORK_PORT)
    assert "vicinal slurm install --host-network" in raised.value.remedy
