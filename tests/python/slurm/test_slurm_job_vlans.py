"""A VLAN for the VFs of each job's nodes: a real Slurm, and fake cards (fake_kernel.py)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from fake_kernel import VLAN
from slurm_node_vfs_support import USER, NodeVfHosts
from slurm_option_support import become, wait_until
from slurm_shared_hosts import SharedHosts
from slurm_vfs_support import FIRST

from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm.job_vfs import owner_of
from vicinal.integrations.slurm.job_vlans import parse_vlans, vlan_of
from vicinal.integrations.slurm.queue import names_gres

OTHER = 2
FILE = """name: lab
nodes:
  - {name: node, count: 2, network: {vf: {card: eth1}, address: 10.9.0.1/24}}
region: none
"""
# Nodes of a job send the job's number to all that hear it. The other job's nodes have the same
# addresses.
HEAR = """
import os, socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1")
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    wire.bind(("", 7777))
    wire.settimeout(0.1)
    heard, until = set(), time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        word = os.environ["SLURM_JOB_ID"] + " " + socket.gethostname()
        wire.sendto(word.encode(), ("10.9.0.255", 7777))
        try:
            heard.add(wire.recv(64).decode())
        except TimeoutError:
            pass
print(*sorted(heard), sep=",")
"""


@pytest.fixture(scope="module")
def hosts(shared_hosts: SharedHosts) -> NodeVfHosts:
    found = shared_hosts.get(NodeVfHosts)
    found.cluster_file("lab.yaml", FILE)
    return found


@contextmanager
def allocated(hosts: NodeVfHosts, user: int) -> Iterator[str]:
    """A job on both hosts, with one node and one VF on each. Yields the job's number."""
    name = f"vlans-{user}"
    options = ("-N2", "--ntasks-per-node=1", "--gres=vf:eth1:1", f"--job-name={name}")
    file = f"--vicinal={hosts.directory}/lab.yaml"
    done = hosts.at_head(*become(user), "salloc", "-Q", *options, file, "--no-shell")
    assert done.returncode == 0, done.stderr
    [number] = hosts.at_head("squeue", "-h", f"--name={name}", "--format=%A").stdout.split()
    try:
        yield number
    finally:
        hosts.at_head("scancel", number)
        wait_until(lambda: not hosts.at_head("squeue", "-h", f"--jobs={number}").stdout)


def step(hosts: NodeVfHosts, user: int, number: str, *command: str) -> tuple[str, ...]:
    file = f"--vicinal={hosts.directory}/lab.yaml"
    options = (f"--jobid={number}", "--chdir=/", "-N2", "--ntasks-per-node=1")
    return (*become(user), "srun", file, *options, *command)


def heard_by_two_jobs(hosts: NodeVfHosts) -> tuple[list[str], list[set[str]]]:
    """The numbers of two users' jobs that run at once, and what the nodes of each job receive."""
    with ExitStack() as jobs:
        users = (USER, OTHER)
        numbers = [jobs.enter_context(allocated(hosts, user)) for user in users]
        for user, number in zip(users, numbers, strict=True):
            done = hosts.at_head(*step(hosts, user, number, "true"))
            assert done.returncode == 0, done.stderr
        talk = ("python3", "-c", HEAR)
        talking = hosts.start(*step(hosts, OTHER, numbers[1], *talk, "30"))
        done = hosts.at_head(*step(hosts, USER, numbers[0], *talk, "3"))
        talking.terminate()
        talking.wait()
        return numbers, [set(line.split(",")) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_jobs_at_once_do_not_hear_each_other(clean: NodeVfHosts) -> None:
    """Two hosts, each with one VF of either job. Both jobs use the same addresses."""
    with clean.with_vlans("1000-1999"):
        numbers, heard = heard_by_two_jobs(clean)
    assert heard == [{f"{numbers[0]} node0", f"{numbers[0]} node1"}] * 2


@pytest.mark.long
def test_in_one_vlan_they_do(clean: NodeVfHosts) -> None:
    numbers, heard = heard_by_two_jobs(clean)
    assert {word.split()[0] for each in heard for word in each} == set(numbers)


@pytest.mark.long
def test_a_job_has_its_vlan_on_all_hosts_and_the_card_has_its_own_again(
    clean: NodeVfHosts,
) -> None:
    with clean.with_vlans("1000-1999"), allocated(clean, USER) as number:
        done = clean.at_head(*step(clean, USER, number, "true"))
        assert done.returncode == 0, done.stderr
        wanted = {owner_of(int(number)): str(1000 + int(number) % 1000)}
        assert [clean.vlans(name) for name in clean.names] == [wanted, wanted]
    wait_until(clean.nothing_left)
    for name in clean.names:
        clean.assign(name, "somebody", FIRST)
        assert clean.vlans(name) == {"somebody": VLAN}
        clean.assign(name, "nobody")


@pytest.mark.long
def test_a_job_does_not_get_another_one_s(clean: NodeVfHosts) -> None:
    """Only one VLAN exists: the second job ends with a message, and the host takes other jobs."""
    with clean.with_vlans("5-5"):
        with allocated(clean, USER) as first, allocated(clean, OTHER) as second:
            done = clean.at_head(*step(clean, USER, first, "true"))
            assert done.returncode == 0, done.stderr
            done = clean.at_head(*step(clean, OTHER, second, "true"))
            assert done.returncode != 0
            assert f"job {first} already has the VLAN 5 of job {second}" in done.stderr
        with allocated(clean, OTHER) as third:
            done = clean.at_head(*step(clean, OTHER, third, "true"))
            assert done.returncode == 0, done.stderr


# --- without a Slurm -----------------------------------------------------------------------


def test_numbers_of_vlans() -> None:
    assert parse_vlans("1000-1999") == range(1000, 2000)
    assert parse_vlans("4094-4094") == range(4094, 4095)
    assert vlan_of(42, range(100, 110), {41, 42, 43}) == 102
    with pytest.raises(VicinalError, match="job 52 already has the VLAN 102"):
        vlan_of(42, range(100, 110), {42, 52})


@pytest.mark.parametrize("words", ["", "7", "0-9", "9-8", "1-4095", "1-99999", "1-2,4", "-1-2"])
def test_what_are_no_vlans(words: str) -> None:
    with pytest.raises(VicinalError, match="is not a range of VLANs"):
        parse_vlans(words)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("gres:vf:1", True),
        ("gres:gpu:1,gres:vf:eth1:2", True),
        ("gres/vf=2", True),
        ("vf:eth1", True),
        ("N/A", False),
        ("gres:gpu:vf:1", False),
        ("gres:vfx:1", False),
    ],
)
def test_words_of_squeue(words: str, named: bool) -> None:
    assert names_gres(words, "vf") is named
