"""The head of a cluster: a process in namespaces of its own, in which launchers run.

    lasting      command ── (ends)        head (pid 1) ─┬─ node0's first process (pid 1)
                                                        └─ node1's first process (pid 1)

    ephemeral    command ── parent ────── head (pid 1) ─┬─ node0's first process (pid 1)
                                                        └─ node1's first process (pid 1)

All processes of a cluster are in the head's PID namespace, its mounts in the head's mount
namespace, its bridge and the nodes' networks in namespaces that only these hold. So if the head
ends, however it ends, the kernel ends all of that. A lasting cluster leaves files and control
groups, an ephemeral one leaves nothing. Without root the head is in a user namespace, and runtimes
start nodes as the root of that namespace.

A command starts this module with one of these argument lists. On the descriptor READY a line of
JSON says how the start went.

    lasting DIRECTORY IDENTIFIER LOCK NETWORK READY      by base/daemon.py
    ephemeral COMMAND REQUEST READY                      as a child of the process COMMAND

A lasting head's parent writes down which process the head is before the head does anything, and
ends when the head is up. The descriptor LOCK keeps other commands out until then. NETWORK is
HOST_NETWORK if the nodes are to share the host's network.

An ephemeral head starts its nodes itself, as REQUEST asks in JSON: `nodes`, a number; `network`,
whether nodes are to have networks of their own; `regions`, pairs of a file of the host and its name
in the exchange. However the command ends, the kernel kills the parent by its parent death signal,
and so the head. The head also ends at the end of its standard input.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import layout, remote_shell
from vicinal.cluster.nodes.container.namespaces import (
    PLAIN,
    describe,
    enter_namespaces,
    entering,
    leave_streams,
    mount_proc,
    mount_shared_memory,
    start_node,
    stay,
)
from vicinal.cluster.nodes.layout import (
    ENTRIES,
    EXCHANGE,
    HEAD,
    NODE_DIRECTORY,
    RANK,
    RANK_TEXT,
    REMOTE_SHELL,
    head_address,
    node_address,
    node_name,
)
from vicinal.cluster.nodes.network import find_tool, host_names, make_bridge, try_network
from vicinal.host import namespaces as kernel

LASTING = "lasting"
EPHEMERAL = "ephemeral"
RECORD = "head.json"
READY_SECONDS = 60.0
OWN_NETWORK = "own"
HOST_NETWORK = "host"

_UNIFIED = Path(layout.HOST_CGROUPS, "cgroup.controllers")
_NO_OWN_NETWORK = "networks of their own: nodes share the host's network"

# An interpreter takes longer to start than a shell: only nodes that take more than nsenter have it.
_REMOTE_SHELL_TEXT = """\
#!/bin/sh
# Stands in for ssh: runs a command line in a node of this cluster.
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
if {{ read -r options < {entries}/"$1"; }} 2>/dev/null; then
    shift
    exec {nsenter} $options -- /bin/sh -c "$*"
fi
exec {python} shell "$@"
"""


class LastingHead:
    """A head that stays when the command has ended; container runtimes start its nodes."""

    def __init__(self, directory: str, identifier: str, lock: str, network: str) -> None:
        self._directory = Path(directory)
        self._identifier = identifier
        self._lock = int(lock)
        self._joins_host = network == HOST_NETWORK
        # crun and runc know no mixture of cgroups of version 1 and 2, and get a version 2 alone.
        self._mixed = not _UNIFIED.exists()
        self.extra_namespaces = kernel.CLONE_NEWCGROUP if self._mixed else 0

    def tie(self) -> None:
        """Nothing to do: it is tied to no command."""

    def record(self, process: int, user_namespace: bool) -> None:
        """Write down which process the head is."""
        from vicinal.base.daemon import Identity  # ephemeral heads need neither
        from vicinal.cluster.nodes.container.state import write_json

        identity = Identity.of(process)
        values = {
            "identifier": self._identifier,
            "boot": identity.boot,
            "process": process,
            "started": identity.began,
            "user_namespace": user_namespace,
        }
        write_json(self._directory / RECORD, values)

    def leave_parent(self) -> None:
        """In the head: give up what only its parent needs."""
        os.close(self._lock)

    def set_up(self) -> dict[str, Any]:
        """In the head: mounts, network, executables."""
        mount_proc()
        # Copies, since the head's own directories are about to hide them.
        sources = {str(self._directory): layout.STATE}
        if Path(layout.HOST_CGROUPS).is_dir():
            sources[layout.HOST_CGROUPS] = layout.CGROUPS
        sources |= {hidden: layout.host_path(Path(hidden)) for hidden in layout.HIDDEN}
        copies = {target: kernel.copy_mounts(source) for source, target in sources.items()}
        _mount_directories("/run/netns")
        for target, copy in copies.items():
            Path(target).mkdir(parents=True)
            kernel.attach_mounts(copy, target)
        if self._mixed and Path(layout.HOST_CGROUPS).is_dir():
            kernel.mount("cgroup2", layout.HOST_CGROUPS, "cgroup2", PLAIN | kernel.MS_NOEXEC)
        kernel.mount(layout.HOSTS, "/etc/hosts", flags=kernel.MS_BIND)
        limitations: list[str] = []
        network = not self._joins_host and _own_network(limitations)
        _write_executables({layout.ENTER: f'#!/bin/sh\nexec {_interpreted()} enter "$@"\n'})
        return {"network": network, "limitations": limitations}

    def stay(self) -> NoReturn:
        """In the head: wait until it is killed."""
        leave_streams()
        stay()

    def attend(self, process: int) -> None:
        """In the parent: nothing to do for a head that is up."""


class EphemeralHead:
    """A head that ends with the command, and starts its nodes itself."""

    extra_namespaces = 0

    def __init__(self, command: str, request: str) -> None:
        self._command = int(command)
        values = json.loads(request)
        self._count: int = values["nodes"]
        self._wants_network: bool = values["network"]
        self._regions: list[tuple[str, str]] = values["regions"]
        self._entries: dict[int, Path] = {}

    def tie(self) -> None:
        """End with the command, from now on or now."""
        kernel.die_with_parent()
        if os.getppid() != self._command:
            sys.exit(1)

    def record(self, process: int, user_namespace: bool) -> None:
        """Nothing to do: the command keeps what it is told."""

    def leave_parent(self) -> None:
        """In the head: end with the parent."""
        kernel.die_with_parent()

    def set_up(self) -> dict[str, Any]:
        """In the head: mounts, network, nodes, executables."""
        limitations: list[str] = []
        try:
            mount_proc()
        except OSError as error:
            limitations.append(f"a /proc of its own ({error.strerror})")
        # By descriptor, since the tmpfs may hide their paths.
        sources = {name: os.open(path, os.O_PATH) for path, name in self._regions}
        _mount_directories(ENTRIES)
        for name, source in sources.items():
            target = f"{EXCHANGE}/{name}"
            Path(target).touch(mode=0o600)
            kernel.mount(f"/proc/self/fd/{source}", target, flags=kernel.MS_BIND)
            os.close(source)
        if self._wants_network:
            network = _own_network(limitations)
        else:
            network = False
            limitations.append(f"{_NO_OWN_NETWORK} (as asked)")
        _name_hosts(self._count, network=network)
        nodes = [start_node(number, network=network) for number in range(self._count)]
        for node in nodes:
            entry = Path(ENTRIES, node_name(node.number))
            entry.write_text(f"{' '.join(entering(node.process_in_proc, network=network))}\n")
            self._entries[node.process] = entry
        _write_executables({})
        return {
            "network": network,
            "limitations": limitations,
            "pid_namespaces": [node.pid_namespace for node in nodes],
        }

    def stay(self) -> NoReturn:
        """In the head: reap until the command closes its end of the standard input, or ends."""
        given = os.dup(0)
        leave_streams()
        signal.signal(signal.SIGCHLD, self._reap)
        self._reap(signal.SIGCHLD, None)
        while os.read(given, 1):
            pass
        os._exit(0)

    def attend(self, process: int) -> None:
        """In the parent: end when the head has ended, and all processes of the cluster with it."""
        leave_streams()
        os.waitpid(process, 0)
        os._exit(0)  # at once, because the command waits

    def _reap(self, _signal: int, _frame: FrameType | None) -> None:
        """The entry of a node that ended goes."""
        with suppress(ChildProcessError):
            while (process := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if process in self._entries:
                    self._entries.pop(process).unlink(missing_ok=True)


def main() -> None:
    """Start the head, and say in a line of JSON how that went."""
    lifetime, *arguments, last = sys.argv[1:]
    ready = int(last)
    head = LastingHead(*arguments) if lifetime == LASTING else EphemeralHead(*arguments)
    head.tie()
    try:
        user_namespace = enter_namespaces(head.extra_namespaces)
    except VicinalError as error:
        _fail(ready, error.message, error.remedy)
    head.tie()  # a change of credentials drops the parent death signal
    go_reader, go_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()
    process = os.fork()
    if process == 0:
        for descriptor in (go_writer, answer_reader, ready):
            os.close(descriptor)
        head.leave_parent()
        if not os.read(go_reader, 1):
            os._exit(1)  # the parent was killed before it wrote us down
        os.close(go_reader)
        _run_head(head, answer_writer)
    for descriptor in (go_reader, answer_writer):
        os.close(descriptor)
    head.record(process, user_namespace)
    os.write(go_writer, b"g")
    if not select.select([answer_reader], [], [], READY_SECONDS)[0]:
        os.kill(process, signal.SIGKILL)
        _fail(ready, f"the cluster's head was not up within {READY_SECONDS:g} s", "try again")
    with os.fdopen(answer_reader, "rb") as answers:
        answer = answers.readline()
    if not answer:
        _fail(ready, "the cluster's head ended unexpectedly", "see whether something killed it")
    facts = {"process": process, "user_namespace": user_namespace, **json.loads(answer)}
    os.write(ready, json.dumps(facts).encode() + b"\n")
    os.close(ready)
    head.attend(process)


def _fail(ready: int, message: str, remedy: str) -> NoReturn:
    os.write(ready, json.dumps({"error": message, "remedy": remedy}).encode() + b"\n")
    sys.exit(1)


def _run_head(head: LastingHead | EphemeralHead, answers: int) -> NoReturn:
    """Process 1 of the cluster."""
    status = 0
    try:
        socket.sethostname(HEAD)
        os.chdir("/")
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        answer = head.set_up()
    except OSError as error:
        answer = {
            "error": f"the cluster's head could not be set up ({describe(error)})",
            "remedy": "see that mounting is allowed in namespaces, or run as root",
        }
        status = 1
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os.close(answers)
    if status:
        os._exit(status)
    head.stay()


def _mount_directories(*more: str) -> None:
    """Mount /dev/shm and /run of the head's own, with the nodes' directories and `more` in /run."""
    mount_shared_memory()
    kernel.mount("tmpfs", "/run", "tmpfs", PLAIN, "mode=755")
    for directory in (EXCHANGE, NODE_DIRECTORY, *more):
        Path(directory).mkdir()


def _own_network(limitations: list[str]) -> bool:
    """Give the caller a network with a bridge; returns False, and says why, where it has none."""
    trouble = try_network()
    if trouble:
        limitations.append(f"{_NO_OWN_NETWORK} ({trouble})")
        return False
    make_bridge()
    return True


def _name_hosts(nodes: int, *, network: bool) -> None:
    hosts = Path(EXCHANGE, "hosts")
    names = {node_name(each): node_address(each, network=network) for each in range(nodes)}
    first = ["127.0.0.1 localhost"]
    with suppress(FileNotFoundError):
        if not network:
            first = Path("/etc/hosts").read_text().splitlines()
    hosts.write_text(host_names(head_address(network=network), names, first))
    with suppress(FileNotFoundError):
        kernel.mount(str(hosts), "/etc/hosts", flags=kernel.MS_BIND)


def _write_executables(more: Mapping[str, str]) -> None:
    """Write the programs that launchers take from the exchange, and `more`, by their paths."""
    remote = _REMOTE_SHELL_TEXT.format(
        entries=ENTRIES, nsenter=find_tool("nsenter"), python=_interpreted()
    )
    for path, text in {REMOTE_SHELL: remote, RANK: RANK_TEXT, **more}.items():
        Path(path).write_text(text)
        Path(path).chmod(0o755)


def _interpreted() -> str:
    # The module imports no other module of ours, so that it starts in milliseconds.
    return f"{sys.executable} -I -S {Path(remote_shell.__file__).resolve()}"


if __name__ == "__main__":
    main()
