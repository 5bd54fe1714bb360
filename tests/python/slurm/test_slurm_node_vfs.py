"""srun --gres=vf:1 --vicinal=FILE with a real Slurm: VFs of fake cards in nodes of jobs.

The VFs' interfaces are real, and the real kernel moves them (fake_kernel.py).
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_kernel import SLOW
from process_support import signal_all, words_of
from slurm_node_vfs_support import USER, NodeVfHosts
from slurm_option_support import become, wait_until
from slurm_shared_hosts import SharedHosts
from slurm_vfs_support import FIRST, INFINIBAND, SECOND

from vicinal.integrations.slurm.job_vfs import owner_of

PLAIN = "name: lab\nnodes: [{{name: node, count: {count}}}]\nregion: none\n"
NAMED = """name: lab
nodes:
  - {name: node, count: 4, network: {vf: {card: eth1}, address: 10.9.0.1/24}}
region: none
"""


@pytest.fixture(scope="module")
def hosts(shared_hosts: SharedHosts) -> NodeVfHosts:
    found = shared_hosts.get(NodeVfHosts)
    found.cluster_file("named.yaml", NAMED)
    for count in (1, 2, 4):
        found.cluster_file(f"{count}.yaml", PLAIN.format(count=count))
    return found


# --- what nodes have -----------------------------------------------------------------------


TALK = """
import json, os, socket, subprocess, time
ip = lambda *words: json.loads(subprocess.check_output(["ip", "-j", *words]))
(link,) = ip("address", "show", "dev", "eth1")
(address,) = (each for each in link["addr_info"])
names = ("VICINAL_VF_INTERFACES", "FI_TCP_IFACE", "VICINAL_NET_INTERFACE")
print(socket.gethostname(), address["local"], address["prefixlen"], "UP" in link["flags"],
      *(os.environ.get(name) for name in names), os.environ["VICINAL_VFS"], flush=True)
others = {f"10.9.0.{number}" for number in range(1, 5)} - {address["local"]}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peers:
    peers.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth1")
    peers.bind((address["local"], 7777))
    peers.settimeout(0.1)
    heard, done, until = set(), set(), None
    while until is None or time.monotonic() < until:
        for other in others:  # of frames some are lost
            try:
                peers.sendto(b"done" if heard >= others else b"here", (other, 7777))
            except OSError:
                pass
        try:
            word, (sender, _port) = peers.recvfrom(16)
            heard.add(sender)
            done |= {sender} if word == b"done" else set()
        except OSError:
            pass
        if until is None and done >= others:
            print(socket.gethostname(), "heard", *sorted(heard), flush=True)
            until = time.monotonic() + 2  # the others may not know that of this one yet
"""


@pytest.mark.parametrize("user", [pytest.param(0, marks=pytest.mark.long), USER])
def test_each_node_has_the_vf_that_the_file_names(clean: NodeVfHosts, user: int) -> None:
    """Nodes on two hosts hear each other by their VFs' addresses, which are reset later."""
    before = {name: clean.interfaces(name) for name in clean.names}
    options = ("-N2", "--ntasks-per-node=2")
    line = clean.step("named", "vf:eth1:2", *options, user=user)
    done = clean.at_head(*line, "timeout", "60", "python3", "-c", TALK)
    assert done.returncode == 0, done.stderr
    said = sorted(done.stdout.splitlines())
    names = [f"10.9.0.{number}" for number in range(1, 5)]
    for number in range(4):
        heard = " ".join(name for name in names if name != names[number])
        vf = (FIRST, SECOND)[number % 2]
        assert said[2 * number :][:2] == [
            f"node{number} {names[number]} 24 True eth1 eth1 eth1 {vf}",
            f"node{number} heard {heard}",
        ]
    wait_until(clean.nothing_left)
    for name in clean.names:
        after = clean.interfaces(name)
        assert after.keys() == before[name].keys()
        assert not set(after.values()) & set(before[name].values())


@pytest.mark.long
def test_without_names_vfs_are_spread_evenly(clean: NodeVfHosts) -> None:
    show = "echo $(hostname) $VICINAL_VF_INTERFACES ${FI_TCP_IFACE-none} $(ls /sys/class/net)"
    show = show.replace(" $(ls /sys/class/net)", " $(cut -sd: -f1 /proc/net/dev)")
    line = clean.step("1", "vf:eth1:2", "-wnode0", "-n1")
    done = clean.at_head(*line, "sh", "-c", show)
    [said] = done.stdout.splitlines()
    assert said.split()[:3] == ["node", "eth1,eth2", "none"]
    assert sorted(said.split()[3:]) == ["eth0", "eth1", "eth2", "lo"]
    line = clean.step("2", "vf:eth1:2", "-wnode0", "-n2")
    done = clean.at_head(*line, "sh", "-c", show)
    for words in map(str.split, done.stdout.splitlines()):
        assert words[1:3] == ["eth1", "none"]
        assert sorted(words[3:]) == ["eth0", "eth1", "lo"]


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["crun", "bubblewrap"])
def test_a_node_sees_the_rdma_device_of_its_infiniband_vf(clean: NodeVfHosts, runtime: str) -> None:
    """The node sees neither other devices nor the file that gives access to the subnet manager."""
    node = f"{{name: node, runtime: {runtime}}}"
    clean.cluster_file("rdma.yaml", f"name: lab\nnodes: [{node}]\nregion: none\n")
    show = "echo $VICINAL_VFS $VICINAL_VF_DEVICES; ls /dev/infiniband"
    line = clean.step("rdma", "vf:ib0:1", "-wnode0", "-n1")
    done = clean.at_head(*line, "sh", "-c", show)
    assert done.stdout.splitlines() == [f"{INFINIBAND} mlx5_0v0", "rdma_cm", "uverbs0"], done.stderr


@pytest.mark.long
def test_later_steps_find_them_and_batch_scripts_run_on_the_host(clean: NodeVfHosts) -> None:
    text = "srun sh -c 'echo $VICINAL_VF_INTERFACES'; echo ${VICINAL_VFS-none}"
    file = clean.directory / "out"
    file.touch()
    file.chmod(0o666)
    options = (f"--vicinal={clean.directory}/1.yaml", "--gres=vf:1", "-wnode0", "--wait")
    # If a step begins while the step before it ends, srun writes that it tries again.
    outputs = (f"--output={file}", "--error=/dev/null")
    wrapped = ("--chdir=/", *outputs, "--wrap", f"{text}; {text}")
    done = clean.at_head(*become(USER), "sbatch", *options, *wrapped)
    assert done.returncode == 0, done.stderr
    assert file.read_text().splitlines() == ["eth1", "none"] * 2


# --- errors --------------------------------------------------------------------------------


UNFIT = {
    "uneven": (
        PLAIN.format(count=2),
        "vf:eth1:1",
        "cannot be spread evenly over its 2 nodes there",
    ),
    "too few": (
        NAMED.replace("4", "2", 1),
        "vf:eth1:1",
        "'node1' needs a VF of 'eth1', and the",
    ),
    "too many": (
        NAMED.replace("4", "1", 1),
        "vf:eth1:2",
        "the cluster file names 1 for its nodes there",
    ),
    "another card": (
        NAMED.replace("4", "1", 1),
        "vf:ib0:1",
        "needs a VF of 'eth1', and the job does not",
    ),
    "address": (
        NAMED.replace("4", "1", 1).replace("eth1", "ib0"),
        "vf:ib0:1",
        "for an InfiniBand VF",
    ),
    "settings": (
        NAMED.replace("eth1}", "eth1, vlan: 9}"),
        "vf:eth1:2",
        "more than the card for the VF of 'node0'",
    ),
}
"""Cluster files, the job's request, and the message."""


@pytest.mark.long
@pytest.mark.parametrize(("text", "gres", "fault"), UNFIT.values(), ids=UNFIT)
def test_vfs_that_do_not_fit(clean: NodeVfHosts, text: str, gres: str, fault: str) -> None:
    clean.cluster_file("bad.yaml", text)
    done = clean.at_head(*clean.step("bad", gres, "-wnode0", "-n1"), "echo", "ran")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count(fault) == 1, done.stderr


@pytest.mark.long
def test_a_card_that_keeps_its_vfs_to_no_vlan(clean: NodeVfHosts) -> None:
    clean.set_vlan("node0", "0")
    try:
        done = clean.at_head(*clean.step("1", "vf:eth1:1", "-wnode0", "-n1"), "true")
    finally:
        clean.set_vlan("node0", "7")
    assert done.returncode != 0
    assert (
        "let the card tag the VF's frames (`ip link set dev eth1 vf 0 vlan NUMBER`" in done.stderr
    )


@pytest.mark.long
@pytest.mark.parametrize("first", ["nodes", "none"])
def test_all_steps_of_a_job_have_them_in_the_same_way(clean: NodeVfHosts, first: str) -> None:
    value = f"--vicinal={clean.directory}/1.yaml"
    steps = [f"srun {value} true", "srun true"]
    steps = steps if first == "nodes" else steps[::-1]
    job = ("salloc", "-Q", "-wnode0", "-n1", "--gres=vf:eth1:1", "--chdir=/", "sh", "-c")
    done = clean.at_head(*become(USER), *job, " && ".join(steps))
    assert done.returncode != 0
    assert "start all steps of the job with the cluster file (--vicinal), or none" in done.stderr


# --- a user who wants to keep a VF ---------------------------------------------------


def head_of(hosts: NodeVfHosts) -> int:
    """The process that owns the user namespace of a job's nodes."""
    [supervisor] = hosts.supervisors("node0")
    found = [each.pid for each in supervisor.children(recursive=True)]
    return min(each for each in found if Path(f"/proc/{each}/root/run/netns/node").exists())


def network_of(process: int) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())


@pytest.mark.parametrize("user", [pytest.param(0, marks=pytest.mark.long), USER])
def test_a_vf_comes_back_from_wherever_its_user_hid_it(clean: NodeVfHosts, user: int) -> None:
    """The user hid it in the network namespace of another process, under another address."""
    number = clean.allocate(user=user)
    head = head_of(clean)
    enter = [*become(user), "nsenter", f"--target={head}"]
    enter += ["--user", "--preserve-credentials"] if user else ["--ipc"]
    with subprocess.Popen([*enter, "unshare", "--net", "sleep", "600"]) as hider:
        try:
            own, nodes = network_of(os.getpid()), f"/proc/{head}/root/run/netns/node"
            wait_until(lambda: network_of(hider.pid) != own)
            address = "ip link set eth1 down && ip link set eth1 address 02:00:00:00:00:99"
            away = f"ip link set eth1 netns {hider.pid} name eth9"
            steal = ["nsenter", f"--net={nodes}", "sh", "-c", f"{address} && {away}"]
            moved = subprocess.run([*enter, *steal], capture_output=True, text=True, check=False)
            assert moved.returncode == 0, moved.stderr
            assert "eth9" in Path(f"/proc/{hider.pid}/net/dev").read_text()
            assert clean.at_head("scancel", number).returncode == 0
            wait_until(clean.nothing_left)
            assert hider.poll() is None
            assert "eth9" not in Path(f"/proc/{hider.pid}/net/dev").read_text()
        finally:
            hider.kill()
    shown = clean.cluster.run_in("node0", ["ip", "link", "show", "eth1v0"])
    assert "02:00:00:00:00:99" not in shown
    assert ",UP" not in shown


# --- killed --------------------------------------------------------------------------------


@pytest.mark.long
def test_a_host_that_lost_all_of_a_job_gives_its_vfs_back(clean: NodeVfHosts) -> None:
    line = clean.step("1", "vf:eth1:1", "-wnode0", "-n1")
    with clean.start(*line, "sleep", "601") as running:
        try:
            wait_until(lambda: clean.owners("node0") and clean.supervisors("node0"))
            wait_until(lambda: "eth1v0" not in clean.interfaces("node0"))
            for program in ("slurmd", "slurmstepd"):
                signal_all(clean.running("node0", program), signal.SIGKILL)
            signal_all(clean.supervisors("node0"), signal.SIGKILL)
            wait_until(lambda: not clean.running("node0", "slurmd"))
            clean.start_slurmd("node0")
            assert clean.at_head("scancel", "--name=granted").returncode == 0
            wait_until(clean.nothing_left)
        finally:
            running.kill()


@pytest.mark.long
def test_nodes_that_ended_are_made_anew_with_the_same_vfs(clean: NodeVfHosts) -> None:
    number = clean.allocate()
    signal_all(clean.supervisors("node0"), signal.SIGKILL)
    show = ("printenv", "VICINAL_VF_INTERFACES")
    done = clean.at_head(*become(USER), *clean.later(number), *show)
    assert done.stdout == "eth1\n", done.stderr
    assert clean.at_head("scancel", number).returncode == 0


@pytest.mark.long
def test_an_epilog_that_was_killed_while_a_driver_takes_its_time(clean: NodeVfHosts) -> None:
    """The request to the driver runs on. The next epilog waits for it, and does the rest."""
    number = clean.allocate()
    slow = clean.directory / SLOW
    slow.touch()
    try:
        assert clean.at_head("scancel", number).returncode == 0
        processes = clean.processes
        release = f"release {number} "
        wait_until(lambda: any(release in " ".join(words_of(each)) for each in processes("node0")))
        wait_until(lambda: any("helper" in words_of(each) for each in processes("node0")))
        signal_all(
            [each for each in processes("node0") if release in " ".join(words_of(each))],
            signal.SIGKILL,
        )
        assert clean.owners("node0") == {FIRST: owner_of(int(number))}
    finally:
        slow.unlink()
    done = clean.at_head("srun", "-wnode0", "-n1", "true")
    assert done.returncode == 0, done.stderr
    wait_until(clean.nothing_left)
