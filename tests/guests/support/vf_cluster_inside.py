"""A cluster of containers on VFs of the card, in the guest of vf_guest.py, as root.

As in vf_inside.py each step prints a line of JSON, and the test outside checks it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from vf_inside import CARD, attempt, card, run, say, wait_for_link

from vicinal.cluster.file.reading import read_cluster
from vicinal.cluster.manager import (
    bring_up,
    cluster_state,
    open_nodes,
    plan_cluster,
    start_cluster,
    stop_cluster,
    take_down,
)
from vicinal.cluster.plan.planning import Shown

NAME = "lab"
FILE = Path("/tmp/cluster.yaml")
VFS = f"vf: {{card: {CARD}, trust: true}}, address: 10.1.0.1/24"


def write(network: str, count: int) -> None:
    """The cluster file, with nodes of this network."""
    nodes = f"{{name: node, count: {count}, runtime: bubblewrap, network: {{{network}}}}}"
    FILE.write_text(f"name: {NAME}\nnodes: [{nodes}]\nregion: none\n")


def up() -> None:
    """Run `vicinal up`."""
    bring_up(read_cluster(FILE))


def planned(step: str) -> None:
    """The output of `vicinal plan`."""
    steps = plan_cluster(read_cluster(FILE))
    say(step, steps=[f"{each.action} {each.key}" for each in steps])


def inside(step: str, node: str, *command: str) -> None:
    """Run a command in a node."""
    run(step, *open_nodes(NAME).exec_command(node, command))


def state(step: str) -> None:
    """What exists of the cluster."""
    pieces = cluster_state(NAME).pieces
    say(step, pieces={piece.key: f"{piece.condition} {piece.why}".strip() for piece in pieces})


def interfaces() -> list[str]:
    """The names of the guest's own interfaces."""
    return sorted(each.name for each in Path("/sys/class/net").iterdir())


def left(step: str) -> None:
    """What is left of a cluster after `down`."""
    folders = ("/run/vicinal-containers", "/root/.local/state/vicinal/clusters")
    found = [str(each) for folder in folders for each in Path(folder).glob("*")]
    records = Path("/run/vicinal-vfs/records.json").read_text()
    say(step, found=found, records=records, interfaces=interfaces())


def vfs() -> None:
    """Two containers, each with a VF: up, messages between them, stop, start."""
    write(VFS, 2)
    planned("plan")
    attempt("cluster up", up)
    planned("plan of what is up")
    card("VFs of containers")
    run("VFs as the card has them", "ip", "-j", "link", "show", "dev", CARD)
    inside("addresses", "node0", "ip", "-j", "address", "show")
    inside("ping", "node0", "ping", "-c", "3", "-w", "20", "-I", "eth1", "10.1.0.2")
    inside("neighbours", "node0", "ip", "-j", "neighbour", "show", "dev", "eth1")
    attempt("stop", lambda: stop_cluster(NAME))
    state("stopped")
    say("interfaces while stopped", names=interfaces())
    attempt("start", lambda: start_cluster(NAME))
    inside("ping again", "node1", "ping", "-c", "1", "-w", "20", "-I", "eth1", "10.1.0.1")


def killed() -> None:
    """The head is killed, and later a command at each of its last steps."""
    write(VFS, 2)
    record = json.loads(Path(f"/run/vicinal-containers/{NAME}/head.json").read_text())
    os.kill(record["process"], signal.SIGKILL)  # the kernel ends the whole cluster with it
    while Path(f"/proc/{record['process']}/root/run/netns/node0").exists():
        time.sleep(0.1)
    state("without its head")
    attempt("up without its head", up)
    state("repaired")
    attempt("cluster down", lambda: take_down(NAME))
    left("after down")
    for at in ("vf/node1", "interface/node1"):
        process = subprocess.run([sys.executable, __file__, at], capture_output=True, check=False)
        say(f"killed at {at}", status=process.returncode, stderr=process.stderr.decode())
        began = time.monotonic()
        # Children of the killed command hold its lock until they end.
        while cluster_state(NAME).busy and time.monotonic() < began + 20:
            time.sleep(0.1)
        say(f"lock after {at}", seconds=time.monotonic() - began)
        state(f"after being killed at {at}")
        attempt(f"down after {at}", lambda: take_down(NAME))
        left(f"after {at}")


def die_at(key: str) -> None:
    """Run `up`, and kill it a moment after a step has begun."""

    def show(step: Shown) -> None:
        if step.key == key and os.fork() == 0:
            time.sleep(0.1)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)

    bring_up(read_cluster(FILE), show)


def whole_card() -> None:
    """One container gets the card itself."""
    address = Path(f"/sys/class/net/{CARD}/device").readlink().name
    write(f"device: '{address}', address: 10.2.0.1/24", 1)
    attempt("up with a card in use", up)
    left("after a refusal")
    run("card down", "ip", "link", "set", CARD, "down")
    attempt("up with a card", up)
    say("interfaces without the card", names=interfaces())
    inside("the card's address", "node", "ip", "-j", "address", "show", "dev", "eth1")
    attempt("down with a card", lambda: take_down(NAME))
    left("after a card")


def main() -> None:
    """Run all steps in order."""
    say("a cluster", uptime=Path("/proc/uptime").read_text())
    run("card up for a cluster", "ip", "link", "set", CARD, "up")
    wait_for_link()
    vfs()
    killed()
    whole_card()
    say("end of the cluster", uptime=Path("/proc/uptime").read_text())


if sys.argv[1:]:
    die_at(sys.argv[1])
else:
    main()
