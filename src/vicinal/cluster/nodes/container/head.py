"""The head of a cluster of containers: a process that stays, in namespaces of its own.

    command ── (ends)        head (pid 1 of the cluster) ─┬─ node0's first process (pid 1)
                                                          └─ node1's first process (pid 1)

All processes of the cluster are in the head's PID namespace, its mounts in the head's mount
namespace, its bridge and the nodes' networks in namespaces that only these hold. So when the
head ends, however it does, the kernel ends all of that; what is left are files and control
groups. Without root the head is in a user namespace, as whose root runtimes start nodes.

A command launches this module (base/daemon.py): HEAD DIRECTORY IDENTIFIER LOCK NETWORK READY. It
forks the head, writes down which process that is before the head does anything, and ends when it
is up. The descriptor LOCK keeps other commands out until then, and on READY a line of JSON says
how it went. NETWORK is HOST_NETWORK where the nodes are to share the host's.
"""

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from vicinal.base.daemon import Identity
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import layout, remote_shell
from vicinal.cluster.nodes.container.state import write_json
from vicinal.cluster.nodes.head_setup import (
    PLAIN,
    enter_namespaces,
    leave_streams,
    mount_directories,
    mount_proc,
    not_set_up,
    own_network,
    write_executables,
)
from vicinal.cluster.nodes.layout import HEAD, RANK, RANK_TEXT
from vicinal.cluster.nodes.layout import REMOTE_SHELL as REMOTE_SHELL_PATH
from vicinal.host import namespaces as kernel

RECORD = "head.json"
READY_SECONDS = 45.0
OWN_NETWORK = "own"
HOST_NETWORK = "host"

_UNIFIED = Path(layout.HOST_CGROUPS, "cgroup.controllers")


def main() -> None:
    """Start the head, and say in a line of JSON how it went."""
    directory, identifier = Path(sys.argv[1]), sys.argv[2]
    lock, ready = int(sys.argv[3]), int(sys.argv[5])
    joins_host = sys.argv[4] == HOST_NETWORK
    # crun and runc know no mixture of cgroups of version 1 and 2, and get a version 2 alone.
    mixed = not _UNIFIED.exists()
    try:
        user_namespace = enter_namespaces(kernel.CLONE_NEWCGROUP if mixed else 0)
    except VicinalError as error:
        _fail(ready, error.message, error.remedy)
    go_reader, go_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()
    head = os.fork()
    if head == 0:
        for descriptor in (go_writer, answer_reader, lock, ready):
            os.close(descriptor)
        if not os.read(go_reader, 1):
            os._exit(1)  # it was killed before it wrote us down
        os.close(go_reader)
        _run_head(directory, answer_writer, mixed=mixed, joins_host=joins_host)
    os.close(answer_writer)
    identity = Identity.of(head)
    write_json(
        directory / RECORD,
        {
            "identifier": identifier,
            "boot": identity.boot,
            "process": head,
            "started": identity.began,
            "user_namespace": user_namespace,
        },
    )
    os.write(go_writer, b"g")
    if not select.select([answer_reader], [], [], READY_SECONDS)[0]:
        os.kill(head, signal.SIGKILL)
        _fail(ready, f"the cluster's head was not up within {READY_SECONDS:g} s", "try again")
    with os.fdopen(answer_reader, "rb") as answers:
        answer = answers.read()
    if not answer:
        _fail(ready, "the cluster's head ended unexpectedly", "see whether something killed it")
    os.write(ready, answer + b"\n")


def _fail(ready: int, message: str, remedy: str) -> NoReturn:
    os.write(ready, json.dumps({"error": message, "remedy": remedy}).encode() + b"\n")
    sys.exit(1)


def _run_head(directory: Path, answers: int, *, mixed: bool, joins_host: bool) -> NoReturn:
    """Process 1 of the cluster."""
    status = 0
    try:
        answer: dict[str, Any] = _set_up(directory, mixed=mixed, joins_host=joins_host)
    except OSError as error:
        trouble = not_set_up("the cluster's head", error)
        answer = {"error": trouble.message, "remedy": trouble.remedy}
        status = 1
    os.write(answers, json.dumps(answer).encode())
    os.close(answers)
    if status:
        os._exit(status)
    leave_streams()
    # The kernel reaps what ends here: monitors of runtimes, what jobs left.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def _set_up(directory: Path, *, mixed: bool, joins_host: bool) -> dict[str, Any]:
    socket.sethostname(HEAD)
    os.chdir("/")
    _make_mounts(directory, mixed=mixed)
    limitations: list[str] = []
    network = not joins_host and own_network(limitations)
    _write_scripts()
    return {"network": network, "limitations": limitations}


def _make_mounts(directory: Path, *, mixed: bool) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    mount_proc()
    # Copies, since the head's own directories are about to hide them.
    sources = {str(directory): layout.STATE}
    if Path(layout.HOST_CGROUPS).is_dir():
        sources[layout.HOST_CGROUPS] = layout.CGROUPS
    sources |= {hidden: layout.host_path(Path(hidden)) for hidden in layout.HIDDEN}
    copies = {target: kernel.copy_mounts(source) for source, target in sources.items()}
    mount_directories("/run/netns")
    for target, copy in copies.items():
        Path(target).mkdir(parents=True)
        kernel.attach_mounts(copy, target)
    if mixed and Path(layout.HOST_CGROUPS).is_dir():
        kernel.mount("cgroup2", layout.HOST_CGROUPS, "cgroup2", PLAIN | kernel.MS_NOEXEC)
    kernel.mount(layout.HOSTS, "/etc/hosts", flags=kernel.MS_BIND)


def _write_scripts() -> None:
    # The module has no other of ours in it, so that it starts in milliseconds.
    enter = f"exec {sys.executable} -I -S {Path(remote_shell.__file__).resolve()}"
    write_executables(
        {
            layout.ENTER: f'#!/bin/sh\n{enter} enter "$@"\n',
            REMOTE_SHELL_PATH: f'#!/bin/sh\n{enter} shell "$@"\n',
            RANK: RANK_TEXT,
        }
    )


if __name__ == "__main__":
    main()
