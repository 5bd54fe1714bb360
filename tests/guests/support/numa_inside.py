"""The steps in the guest of test_numa.py, as root: each prints a line of JSON.

The guest has two NUMA nodes with processors, and one that has only memory. Vicinal's parts that
read NUMA nodes, or request memory of one, run on the real kernel. The test checks the lines.
"""

import ctypes
import io
import json
import mmap
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.manager import bring_up, open_nodes, take_down
from vicinal.cluster.nodes.placement import place_nodes
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.host.checks.processor_and_memory import check_huge_pages, check_numa
from vicinal.host.system import Host
from vicinal.host.topology import read_cpus, read_nodes
from vicinal.integrations.opennebula.deploy import Pinning, Topology, VirtualNode, pinned
from vicinal.integrations.opennebula.held_resources import read_placement
from vicinal.integrations.opennebula.probe import _huge_pages, show
from vicinal.integrations.opennebula.records import REGIONS, Records
from vicinal.integrations.opennebula.request import Limits, RegionRequest

MIB = 1 << 20
HUGE = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
_MOVE_PAGES, _GET_MEMPOLICY = 279, 239
_libc = ctypes.CDLL(None, use_errno=True)
host = Host()


def say(step: str, **found: object) -> None:
    """Print one line for the test outside."""
    print(json.dumps({"step": step, **found}), flush=True)


def refusal(action: Callable[[], object]) -> str:
    """Call a function that may be refused; returns the error."""
    said = io.StringIO()
    with redirect_stderr(said):
        try:
            return str(action() or said.getvalue())
        except VicinalError as error:
            return str(error)


def pages_of(path: Path) -> dict[str, int]:
    """The number of pages of a file in memory on each NUMA node, as the kernel reports it."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        count = len(memory) // mmap.PAGESIZE
        for page in range(count):  # the kernel reports only pages that a process has accessed
            memory[page * mmap.PAGESIZE]
        first = ctypes.c_char.from_buffer(memory)
        start = ctypes.addressof(first)
        pages = (ctypes.c_void_p * count)(*range(start, start + len(memory), mmap.PAGESIZE))
        found = (ctypes.c_int * count)()
        failed = _libc.syscall(_MOVE_PAGES, 0, ctypes.c_ulong(count), pages, None, found, 0)
        assert not failed, os.strerror(ctypes.get_errno())
        del first
    return {str(node): number for node, number in sorted(Counter(found).items())}


def policy() -> int:
    """This thread's memory policy; 0 is the kernel's default."""
    mode = ctypes.c_int(-1)
    assert not _libc.syscall(_GET_MEMPOLICY, ctypes.byref(mode), None, ctypes.c_ulong(0), None, 0)
    return mode.value


def region(step: str, nodes: Sequence[int], mebibytes: int = 16, processor: int = 0) -> None:
    """Call `deploy` for a VM with memory of these nodes, from a process on one processor."""
    os.sched_setaffinity(0, {processor})
    records = Records(Path("/dev/shm/records"), frozenset)
    request = RegionRequest(5, "job42", mebibytes * MIB, 16)
    found: dict[str, object] = {}

    def make() -> None:
        with records.held(42, request, Limits(), nodes):
            found.update(pages=pages_of(REGIONS / request.name), policy=policy())
            (huge,) = re.findall(r"ShmemHugePages: +(\d+) kB", Path("/proc/meminfo").read_text())
            found.update(huge_mebibytes=int(huge) // 1024)

    say(step, said=refusal(make), **found)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def regions() -> None:
    """Regions for VMs on each node, on several nodes, and on missing or full nodes."""
    region("region of no node, from node 0", ())
    region("region of no node, from node 1", (), processor=4)
    region("region of node 0", (0,), processor=4)
    region("region of node 1", (1,))
    region("region of node 2", (2,))
    region("region of nodes 0 and 1", (0, 1))
    region("region of nodes 1 and 2", (1, 2))
    region("region of node 3", (3,))
    region("region of node 2, too long", (2,), mebibytes=64)
    subprocess.run(["mount", "-o", "remount,huge=within_size", "/dev/shm"], check=True)
    region("region of node 1, huge pages", (1,))
    subprocess.run(["mount", "-o", "remount,huge=never", "/dev/shm"], check=True)


def report() -> None:
    """What doctor and OpenNebula's probe report."""
    say("processors", found=[asdict(each) for each in read_cpus(host)])
    Path(HUGE).write_text("4")
    for name, check in (("numa", check_numa), ("huge pages", check_huge_pages)):
        found = [(each.status.value, each.text, each.remedy) for each in check(host)]
        say(name, found=found)
    say("probe", lines=[show(each) for each in _huge_pages(host)])


def domain(pins: Sequence[str] = ()) -> bytes:
    """OpenNebula's document of a VM with memory from node 1, on these processors or any."""
    lines = "".join(f'<vcpupin vcpu="{n}" cpuset="{pin}"/>' for n, pin in enumerate(pins))
    if pins:
        lines += f'<emulatorpin cpuset="{",".join(pins)}"/>'
    tune = f"<cputune><shares>512</shares>{lines}</cputune>"
    memory = '<numatune><memory mode="strict" nodeset="1"/></numatune>'
    return f'<domain type="kvm"><name>one-42</name>{tune}{memory}</domain>'.encode()


def pinning() -> None:
    """VICINAL_PINNING, and the check of a host on which a VM is restored."""
    near = next(node.cpus for node in read_nodes(host) if node.number == 1)
    chosen = Topology("NONE", (VirtualNode(2, near, 1),))
    written, _ = pinned(domain(), Pinning(True, False), chosen, ())
    here = written.decode()
    say("pinned to the node", domain=here)
    own = Topology("CORE", (VirtualNode(2, near[::2], 1),))
    pins = list(map(str, near[::2]))
    beside, left = pinned(domain(pins), Pinning(False, True), own, read_cpus(host))
    say("emulator beside", domain=beside.decode(), left=left)
    for step, text in (
        ("a VM that is right here", here),
        ("one whose processors are elsewhere", here.replace('nodeset="1"', 'nodeset="0"')),
        ("one of a processor too many", domain(["7", "8"]).decode()),
        ("one of a node too many", here.replace('nodeset="1"', 'nodeset="3"')),
    ):
        placement = read_placement(text)
        say(step, said=refusal(lambda at=placement: at.check("one-42", host)))  # type: ignore[misc]


def placement() -> None:
    """The policies of the papers, and a cluster that really uses one of them."""
    file = Path("/tmp/cluster.yaml")
    cpus, nodes = read_cpus(host), read_nodes(host)
    for policy_name, reserve, each in (("core", 1, 1), ("socket", 0, 2), ("numa", 1, 1)):
        kind = f"{{name: node, count: 2, cpus: {each}, runtime: bubblewrap}}"
        placed = f"{{policy: {policy_name}, reserve: {reserve}}}"
        file.write_text(f"name: lab\nnodes: [{kind}]\nregion: none\nplacement: {placed}\n")
        say(f"placement {policy_name}", placed=place_nodes(read_cluster(file), cpus, nodes))
    bring_up(read_cluster(file))
    allowed = {}
    for name in ("node0", "node1"):
        words = ("grep", "Cpus_allowed_list", "/proc/self/status")
        command = open_nodes("lab").exec_command(name, words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        allowed[name] = done.stdout.split()[1:] or [done.stderr]
    say("cluster", allowed=allowed)
    take_down("lab")


def room() -> None:
    """Virtual machines that fit into the host, but not into their node."""
    free = next(node.available_bytes for node in read_nodes(host) if node.number == 1) // MIB
    for step, mebibytes in (("room", free // 2), ("no room", free + 8)):
        vm = Vm("0-lab", "node1", 1, (), "", "/", 2, mebibytes, memory_nodes=(1,))
        say(step, said=refusal(lambda it=vm: check_room([it])), mebibytes=mebibytes)  # type: ignore[misc]


report()
regions()
pinning()
room()
placement()
say("end", uptime=Path("/proc/uptime").read_text())
