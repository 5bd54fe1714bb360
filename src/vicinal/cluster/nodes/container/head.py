"""The head of a cluster: a process in namespaces of its own, in which launchers run.

    lasting      command ── (ends)        head (pid 1) ─┬─ node0's first process (pid 1)
                                                        └─ node1's first process (pid 1)

    ephemeral    command ── parent ────── head (pid 1) ─┬─ node0's first process (pid 1)
                                                        └─ node1's first process (pid 1)

All processes of a cluster are in the head's PID namespace, and its mounts are in the head's mount
namespace. Only these processes hold the namespaces of the bridge and of the nodes' networks. So if
the head ends, however it ends, the kernel ends all of the cluster. A lasting cluster leaves files
and control groups; an ephemeral cluster leaves nothing. Without root the head is in a user
namespace, and runtimes start nodes as the root of that namespace.

A command starts this module with one of these argument lists. The module reports the result of the
start as a line of JSON, on the descriptor READY.

    lasting DIRECTORY IDENTIFIER LOCK NETWORK READY      by base/daemon.py
    ephemeral COMMAND REQUEST READY                      as a child of the process COMMAND

The parent of a lasting head records the head's PID before the head does anything, and ends when the
head is up. Until then, the descriptor LOCK keeps other commands out. NETWORK is HOST_NETWORK if the
nodes share the host's network, otherwise OWN_NETWORK.

An ephemeral head starts its nodes itself. REQUEST is JSON: `nodes`, the number of nodes; `network`,
whether nodes have networks of their own; `regions`, pairs of a file of the host and its name in the
exchange directory. However the command ends, the kernel kills the parent by its parent death
signal, and then the head in the same way. The head also ends at the end of its standard input.
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

# The shell enters nodes for which nsenter suffices. Only other nodes need remote_shell.py, because
# Python takes longer to start than a shell.
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
    """A head that outlives the command; container runtimes start its nodes."""

    def __init__(self, directory: str, identifier: str, lock: str, network: str) -> None:
        self._directory = Path(directory)
        self._identifier = identifier
        self._lock = int(lock)
        self._joins_host = network == HOST_NETWORK
        # crun and runc do not support a mixture of cgroups of versions 1 and 2, so the head shows
        # them version 2 only.
        self._mixed = not _UNIFIED.exists()
        self.extra_namespaces = kernel.CLONE_NEWCGROUP if self._mixed else 0

    def tie(self) -> None:
        """Do nothing: a lasting head does not end with the command."""

    def record(self, process: int, user_namespace: bool) -> None:
        """Record the head's PID, start time and boot."""
        from vicinal.base.daemon import Identity  # ephemeral heads need neither module
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
        """In the head: close the lock, which only the parent needs."""
        os.close(self._lock)

    def set_up(self) -> dict[str, Any]:
        """In the head: set up mounts, network and executables."""
        mount_proc()
        # Copied now, because the head's own mounts hide these directories below.
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
        if not Path("/etc/hosts").exists():
            raise VicinalError(
                "this host has no /etc/hosts, over which nodes get the names of their cluster",
                "create the file: `touch /etc/hosts`",
            )
        kernel.mount(layout.HOSTS, "/etc/hosts", flags=kernel.MS_BIND)
        limitations: list[str] = []
        network = not self._joins_host and _own_network(limitations)
        _write_executables({layout.ENTER: f'#!/bin/sh\nexec {_interpreted()} enter "$@"\n'})
        return {"network": network, "limitations": limitations}

    def stay(self) -> NoReturn:
        """In the head: wait until it is killed."""
        leave_streams()
        stay()

    def wait_in_parent(self, process: int) -> None:
        """In the parent: do nothing, because the head is up and the parent can end."""


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
        """Let this process end with the command; exit if the command has ended already."""
        kernel.die_with_parent()
        if os.getppid() != self._command:
            sys.exit(1)

    def record(self, process: int, user_namespace: bool) -> None:
        """Do nothing: the command gets the head's PID and keeps it in memory."""

    def leave_parent(self) -> None:
        """In the head: end with the parent."""
        kernel.die_with_parent()

    def set_up(self) -> dict[str, Any]:
        """In the head: set up mounts, network, nodes and executables."""
        limitations: list[str] = []
        try:
            mount_proc()
        except OSError as error:
            limitations.append(f"a /proc of its own ({error.strerror})")
        # By descriptor, because the new tmpfs mounts may hide the paths of the regions.
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
        """In the head: reap processes until the command closes its end of the standard input."""
        given = os.dup(0)
        leave_streams()
        signal.signal(signal.SIGCHLD, self._reap)
        self._reap(signal.SIGCHLD, None)
        while os.read(given, 1):
            pass
        os._exit(0)

    def wait_in_parent(self, process: int) -> None:
        """In the parent: end when the head, and with it all processes of the cluster, has ended."""
        leave_streams()
        os.waitpid(process, 0)
        os._exit(0)  # without Python's cleanup, because the command waits

    def _reap(self, _signal: int, _frame: FrameType | None) -> None:
        """Reap ended processes, and remove the entries of ended nodes."""
        with suppress(ChildProcessError):
            while (process := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if process in self._entries:
                    self._entries.pop(process).unlink(missing_ok=True)


def main() -> None:
    """Start the head, and report the result as a line of JSON."""
    lifetime, *arguments, last = sys.argv[1:]
    ready = int(last)
    head = LastingHead(*arguments) if lifetime == LASTING else EphemeralHead(*arguments)
    head.tie()
    try:
        user_namespace = enter_namespaces(head.extra_namespaces)
    except VicinalError as error:
        _fail(ready, error.message, error.remedy)
    head.tie()  # again, because a change of credentials clears the parent death signal
    go_reader, go_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()
    process = os.fork()
    if process == 0:
        for descriptor in (go_writer, answer_reader, ready):
            os.close(descriptor)
        head.leave_parent()
        if not os.read(go_reader, 1):
            os._exit(1)  # the parent was killed before it recorded this process
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
    head.wait_in_parent(process)


def _fail(ready: int, message: str, remedy: str) -> NoReturn:
    os.write(ready, json.dumps({"error": message, "remedy": remedy}).encode() + b"\n")
    sys.exit(1)


def _run_head(head: LastingHead | EphemeralHead, answers: int) -> NoReturn:
    """Set up the cluster and stay, as process 1 of its PID namespace."""
    status = 0
    try:
        socket.sethostname(HEAD)
        if kernel.leave_chroot():
            raise VicinalError(
                "nodes cannot be made in a chroot: a process that enters a node would leave it",
                "use a container instead, such as `systemd-nspawn --directory=DIRECTORY`",
            )
        os.chdir("/")
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        answer = head.set_up()
    except OSError as error:
        answer = {
            "error": f"the cluster's head could not be set up ({describe(error)})",
            "remedy": "check that namespaces may mount, or run as root",
        }
        status = 1
    except VicinalError as error:
        answer = {"error": error.message, "remedy": error.remedy}
        status = 1
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os.close(answers)
    if status:
        os._exit(status)
    head.stay()


def _mount_directories(*more: str) -> None:
    """Mount private /dev/shm and /run, and create the nodes' directories and `more` in /run."""
    mount_shared_memory()
    kernel.mount("tmpfs", "/run", "tmpfs", PLAIN, "mode=755")
    for directory in (EXCHANGE, NODE_DIRECTORY, *more):
        Path(directory).mkdir()


def _own_network(limitations: list[str]) -> bool:
    """Give the caller a network namespace with a bridge.

    If that fails, add the reason to `limitations` and return False.
    """
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
    """Write the executables of launchers into the exchange directory, and `more`: text by path."""
    remote = _REMOTE_SHELL_TEXT.format(
        entries=ENTRIES, nsenter=find_tool("nsenter"), python=_interpreted()
    )
    for path, text in {REMOTE_SHELL: remote, RANK: RANK_TEXT, **more}.items():
        Path(path).write_text(text)
        Path(path).chmod(0o755)


def _interpreted() -> str:
    # remote_shell.py imports no other module of this package, so that it starts in milliseconds.
    return f"{sys.executable} -I -S {Path(remote_shell.__file__).resolve()}"


if __name__ == "__main__":
    main()
