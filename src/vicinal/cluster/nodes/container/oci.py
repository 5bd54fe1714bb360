"""Nodes by runtimes of the Open Container Initiative: crun and runc.

A node is a bundle: a directory with its configuration (config.json) and a root that contains only
mount points and symbolic links.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container import layout
from vicinal.cluster.nodes.container.cgroup import Group
from vicinal.cluster.nodes.container.head_process import Head
from vicinal.cluster.nodes.container.root import Kind, Mount
from vicinal.cluster.nodes.container.runtime import FIRST_PROCESS, START_SECONDS, Entry, Prepared

_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_RAW": 13,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_MKNOD": 27,
    "CAP_AUDIT_WRITE": 29,
    "CAP_SETFCAP": 31,
}
"""Capabilities of nodes, with the numbers of the kernel's bits.

They are the capabilities that container engines grant by default, and those that MPI needs for
locked memory, priorities and single copies.
"""

_DEVICES = (
    ("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755"]),
    ("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
    ("/dev/shm", "tmpfs", ["nosuid", "nodev", "mode=1777"]),
    ("/dev/mqueue", "mqueue", ["nosuid", "nodev", "noexec"]),
)


class OciRuntime:
    """The runtime crun or runc."""

    def __init__(self, name: str, program: str) -> None:
        self.name = name
        self.program = program

    def start(self, head: Head, node: Prepared) -> None:
        inside = Path(node.directory)
        bundle = head.path(str(inside / "bundle"))
        rootfs = bundle / "rootfs"
        rootfs.mkdir(parents=True, exist_ok=True)
        for mount in node.mounts:
            if mount.kind is Kind.SYMLINK:
                link = rootfs / mount.destination.lstrip("/")
                link.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    link.symlink_to(mount.source)
        (bundle / "config.json").write_text(json.dumps(self._configuration(head, node)))
        groups = [each for each in node.groups if self.name != "runc" or each.version == 1]
        join = "".join(
            f"echo 0 > {layout.cgroup_path(each.path)}/cgroup.procs && " for each in groups
        )
        run = ["run", "--detach", "--pid-file", f"{inside}/pid", "--bundle", f"{inside}/bundle"]
        head.run(
            # The node inherits these streams. If it inherited the pipes of head.run(), head.run()
            # would wait until the node ends.
            [
                "sh",
                "-c",
                f'{join}"$@" </dev/null >"$0/output" 2>"$0/log" || '
                '{ status=$?; tail -n 1 "$0/log" >&2; exit $status; }',
                node.directory,
                *self._command(),
                *run,
                node.spec.name,
            ],
            environment=node.environment,
            timeout=START_SECONDS,
        )

    def process(self, head: Head, node: str) -> int | None:
        """Return the PID that the runtime wrote into the node's file `pid`."""
        try:
            return int(head.path(f"{layout.NODES}/{node}/pid").read_text())
        except (OSError, ValueError):
            return None

    def entry(self, node: Prepared, process: int) -> Entry:
        """Return a command line of `crun exec` or `runc exec`."""
        del process
        return Entry(
            command=[*self._command(), "exec"],
            tty=["--tty"],
            variables="--env",
            directory="--cwd",
            node=[node.spec.name],
        )

    def remove(self, head: Head, node: str) -> None:
        """Run `crun delete --force`, which may fail for a node that was not created completely."""
        with suppress(VicinalError):
            head.run([*self._command(), "delete", "--force", node])
        if head.path(f"{self._root()}/{node}").exists():
            # The runtime's files are incomplete. The node's processes are found by their mark.
            head.run(["rm", "-rf", f"{self._root()}/{node}"])

    def _command(self) -> list[str]:
        # Vicinal creates the control groups itself. runc has no option that turns its own off.
        own = ["--cgroup-manager=disabled"] if self.name == "crun" else []
        return [self.program, "--root", self._root(), *own]

    def _root(self) -> str:
        return f"{layout.STATE}/{self.name}"

    def _configuration(self, head: Head, node: Prepared) -> dict[str, Any]:
        namespaces: list[dict[str, str]] = [
            {"type": kind} for kind in ("pid", "ipc", "uts", "mount")
        ]
        if node.network is not None:
            namespaces.append({"type": "network", "path": node.network})
        capabilities = ("bounding", "effective", "permitted")
        linux: dict[str, Any] = {"namespaces": namespaces}
        group = _runc_group(head, node) if self.name == "runc" else None
        if group is not None:
            linux["cgroupsPath"] = group
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": 0, "gid": 0},
                "args": list(FIRST_PROCESS),
                "env": [f"{name}={value}" for name, value in node.environment.items()],
                "cwd": "/",
                "capabilities": dict.fromkeys(capabilities, _granted(head)),
            },
            "root": {"path": "rootfs", "readonly": True},
            "hostname": node.spec.name,
            "mounts": [entry for mount in node.mounts for entry in _mount(mount)],
            "linux": linux,
        }


def _granted(head: Head) -> list[str]:
    """Return the names of _CAPABILITIES that the head has; root in a container may lack some."""
    status = Path(f"/proc/{head.process}/status").read_text()
    bounds = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    bits = int(bounds.split()[1], 16)
    return [name for name, bit in _CAPABILITIES.items() if bits >> bit & 1]


def runc_scratch(groups: Path, identifier: str, node: str) -> Path:
    """Return the version 2 group that runc creates for a node without one; it limits nothing.

    `groups` is the directory of the hierarchy.
    """
    return groups / f"vicinal-runc-{identifier}-{node}"


def _runc_group(head: Head, node: Prepared) -> str | None:
    """Return the version 2 group for runc, as a path in the hierarchy; None: runc creates none.

    An ordinary user's runc creates a group only if the configuration names one.
    """
    for group in node.groups:
        if group.version == 2:
            return "/" + str(Path(group.path).relative_to(layout.HOST_CGROUPS))
    if head.user_namespace:
        return None
    return str(runc_scratch(Path("/"), head.identifier, node.spec.name))


def scratch_groups(identifier: str, node: str) -> list[Group]:
    """Return the directories on the host in which the group of runc_scratch() may be."""
    return [
        Group(str(runc_scratch(Path(hierarchy), identifier, node)), (), 2)
        for hierarchy in (layout.HOST_CGROUPS, f"{layout.HOST_CGROUPS}/unified")
    ]


def _mount(mount: Mount) -> Iterator[dict[str, Any]]:
    match mount.kind:
        case Kind.BIND | Kind.READ_ONLY:
            # crun can make only a file itself read-only (ro), not recursively (rro).
            options = ["rbind", "rro"] if mount.directory else ["bind", "ro"]
            if mount.kind is Kind.BIND:
                options = options[:1]
            yield _entry(mount.destination, "none", options, mount.source)
        case Kind.TMPFS:
            yield _entry(mount.destination, "tmpfs", ["nosuid", "nodev", f"mode={mount.mode:o}"])
        case Kind.PROC:
            yield _entry(mount.destination, "proc", ["nosuid", "nodev", "noexec"])
        case Kind.DEV:
            for destination, kind, options in _DEVICES:
                yield _entry(destination, kind, options)
        case Kind.SYMLINK:
            pass  # start() creates the link in the root


def _entry(destination: str, kind: str, options: list[str], source: str = "") -> dict[str, Any]:
    return {
        "destination": destination,
        "type": kind,
        "source": source or kind,
        "options": options,
    }
