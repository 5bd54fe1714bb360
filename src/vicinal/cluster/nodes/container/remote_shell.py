"""Runs a command in a node, from the head: a replacement for ssh and `docker exec`.

    shell HOST COMMAND...                                as ssh: /bin/sh runs the joined words
    enter [--tty] [--directory DIRECTORY] NODE COMMAND...    runs the words unchanged

The head runs this file as a program, by a Python interpreter that searches no packages. The command
gets the caller's variables and standard streams, and its exit status becomes that of this program.
Commands for other hosts go to the Vicinal command outside the head that started the launcher
(vicinal/cluster/hosts/containers.py). The variable FAR_SHELL has the path of its socket.
"""

import json
import os
import sys
from typing import Any, NoReturn

FAR_SHELL = "VICINAL_FAR_SHELL"
STREAMS = 3

_NODES = "/run/cluster/nodes"


def main() -> None:
    """Run the command of this program's arguments."""
    mode, *words = sys.argv[1:]
    tty, directory = False, "/"
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if mode == "enter" and option == "--tty":
            tty = True
        elif mode == "enter" and option == "--directory":
            directory = words.pop(0)
    if not words:
        _fail("no node is named")
    node, command = words[0], words[1:]
    far = os.environ.get(FAR_SHELL)
    if far and mode == "shell" and not os.path.exists(f"{_NODES}/{node}"):  # noqa: PTH110 - as below
        _ask_far(far, node, " ".join(command))
    entry = _entry(node)
    if mode == "shell":
        command = ["/bin/sh", "-c", " ".join(command)]
    for group in entry["cgroups"]:
        try:
            with open(f"{group}/cgroup.procs", "w") as members:  # noqa: PTH123 - pathlib loads slowly
                members.write("0")
        except OSError as error:
            _fail(f"the control group of {node} cannot be entered ({error.strerror})")
    if entry["cpus"]:
        os.sched_setaffinity(0, entry["cpus"])
    line = [*entry["command"]]
    if tty:
        line += entry["tty"]
    if entry["variables"]:
        for name, value in os.environ.items():
            line += [entry["variables"], f"{name}={value}"]
    if entry["directory"]:
        line += [entry["directory"], directory]
    line += entry["node"]
    if not entry["directory"]:
        # nsenter before 2.39 has no option for the working directory of the node.
        line += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', directory]
    try:
        os.execv(line[0], line + command)
    except OSError as error:
        _fail(f"{line[0]} cannot be run ({error.strerror})")


def _ask_far(socket_path: str, node: str, command: str) -> NoReturn:
    """Have a command run in a node of another host, and exit with its status."""
    import socket  # most calls need no socket

    environment = {name: value for name, value in os.environ.items() if name != FAR_SHELL}
    request = {"node": node, "command": command, "environment": environment}
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(socket_path)
            socket.send_fds(server, [b"x"], list(range(STREAMS)))
            server.sendall(json.dumps(request).encode() + b"\n")
            with server.makefile("rb") as answer:
                status = int(answer.readline() or b"255")
        except (OSError, ValueError):
            _fail(f"the command that started the job does not answer, to reach {node}")
    sys.exit(status)


def _entry(node: str) -> dict[str, Any]:
    try:
        with open(f"{_NODES}/{node}/entry.json") as text:  # noqa: PTH123 - as above
            entry: dict[str, Any] = json.load(text)
            return entry
    except (OSError, ValueError):
        _fail(f"there is no node {node} that runs in this cluster")


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"vicinal: error: {message}: see `vicinal status`\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
