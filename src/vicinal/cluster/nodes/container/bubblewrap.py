"""Nodes by bubblewrap, which needs no configuration and no privileges, and stores no state.

bwrap remains the parent of the node's first process, and writes the PID of that process into a
file.
"""

import json

from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.namespaces import entering
from vicinal.cluster.nodes.container.root import Kind, Mount
from vicinal.cluster.nodes.container.runtime import FIRST_PROCESS, START_SECONDS, Entry, Prepared
from vicinal.cluster.nodes.network import find_tool

# Starts bwrap in the background, and waits until the node's first process writes "ready".
_START = """
node=$1
net=$2
shift 2
rm -f "$node/output" "$node/info"
exec 3> "$node/info" > "$node/output" 2> "$node/log"
if [ -n "$net" ]; then set -- nsenter --net="$net" "$@"; fi
"$@" < /dev/null 4>&- &
exec 3>&-
while :; do
    read -r line < "$node/output" && [ "$line" = ready ] && exit
    if ! kill -0 $! 2> /dev/null; then break; fi
    sleep 0.005
done
wait $!
status=$?
exec 2>&4
tail -n 1 "$node/log" >&2
exit $((status == 0 ? 1 : status))
"""


class Bubblewrap:
    """The runtime bubblewrap, whose program is bwrap."""

    name = "bubblewrap"

    def __init__(self, program: str) -> None:
        self.program = program

    def start(self, head: Head, node: Prepared) -> None:
        join = "".join(
            f"echo 0 > {layout.cgroup_path(each.path)}/cgroup.procs || exit 1\n"
            for each in node.groups
        )
        options = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1"]
        options += ["--hostname", node.spec.name, "--chdir", "/", "--info-fd", "3"]
        for mount in node.mounts:
            options += _options(mount)
        options += ["--remount-ro", "/"]
        head.run(
            [
                "setsid",
                "sh",
                "-c",
                f"exec 4>&2\n{join}{_START}",
                "start",
                node.directory,
                node.network or "",
                self.program,
                *options,
                "--",
                *FIRST_PROCESS,
            ],
            environment=node.environment,
            timeout=START_SECONDS,
        )

    def process(self, head: Head, node: str) -> int | None:
        """Return the PID that bwrap wrote into the node's file `info`."""
        try:
            text = head.path(f"{layout.NODES}/{node}/info").read_text()
            return int(json.loads(text)["child-pid"])
        except (OSError, ValueError, KeyError):
            return None

    def entry(self, node: Prepared, process: int) -> Entry:
        """Return a command line of nsenter, because bwrap cannot enter a running node."""
        tool = find_tool("nsenter") or "nsenter"
        return Entry(
            command=[tool, *entering(process, network=node.network is not None)],
            tty=[],
            variables="",
            directory="",
            node=["--"],
        )

    def remove(self, head: Head, node: str) -> None:
        """Do nothing: bwrap leaves only processes, which are found by their mark (NODE_MARK)."""


def _options(mount: Mount) -> list[str]:
    match mount.kind:
        case Kind.BIND:
            return ["--dev-bind", mount.source, mount.destination]
        case Kind.READ_ONLY:
            return ["--ro-bind", mount.source, mount.destination]
        case Kind.TMPFS:
            return ["--perms", f"{mount.mode:04o}", "--tmpfs", mount.destination]
        case Kind.PROC:
            return ["--proc", mount.destination]
        case Kind.DEV:
            return [
                *("--dev", mount.destination),
                *("--perms", "1777", "--tmpfs", f"{mount.destination}/shm"),
                *("--mqueue", f"{mount.destination}/mqueue"),
            ]
        case Kind.SYMLINK:
            return ["--symlink", mount.source, mount.destination]
