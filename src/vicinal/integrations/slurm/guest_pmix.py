"""PMIx in virtual machines: connects programs in a guest to their step's PMIx server on this host.

The guest's sshd listens on the guest's loopback. ssh forwards each connection over the supervisor's
connection to a socket in the supervisor's directory, and the task connects it to the server. With
the task all of this ends; only a socket without a listener remains.
"""

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from threading import BoundedSemaphore, Thread

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.integrations.slurm.files import find_files, setting

_URI = re.compile(r"(PMIX_SERVER_URI\w+)=(.*tcp4://127\.0\.0\.1:)(\d+)(.*)", re.DOTALL)
_CONNECTIONS_MOST = 32
_CHUNK = 65536
_ANSWER_SECONDS = 60.0
_HOSTS = re.compile(r"PMIX_(SERVER_TMPDIR|SYSTEM_TMPDIR|DSTORE_\w+)")
"""Variables that name files of the host."""


class GuestPmix:
    """The forwarding from a guest to the PMIx server of a step, for one task.

    `directory` is the supervisor's directory as this process sees it, `inside` as the supervisor
    sees it.
    """

    def __init__(self, shell: GuestShell, port: int, directory: Path, inside: Path) -> None:
        self._shell = shell
        self._port = port
        self._room = BoundedSemaphore(_CONNECTIONS_MOST)
        name = f"{shell.name}.pmix-{os.getpid()}"
        self._socket = directory / name
        self._inside = inside / name
        self._spec = ""

    def open(self) -> int:
        """Start listening in the guest; returns the port. Raises VicinalError if the guest cannot
        listen.
        """
        self._listener = socket.socket(socket.AF_UNIX)
        # The path of a socket is limited to 108 bytes.
        directory = os.open(self._socket.parent, os.O_PATH | os.O_DIRECTORY)
        self._listener.bind(f"/proc/self/fd/{directory}/{self._socket.name}")
        os.close(directory)
        self._listener.listen(_CONNECTIONS_MOST)
        Thread(target=self._take, daemon=True).start()
        self._spec = f"127.0.0.1:0:{self._inside}"
        done = self._control("forward")
        if done.returncode != 0 or not done.stdout.strip().isdigit():
            raise self._shell.failure(f"the guest has no socket for PMIx ({done.stderr.strip()})")
        return int(done.stdout)

    def close(self) -> None:
        """Stop listening in the guest."""
        with suppress(OSError, subprocess.SubprocessError):
            self._control("cancel")
        self._socket.unlink(missing_ok=True)

    def _control(self, what: str) -> subprocess.CompletedProcess[str]:
        ssh, *options = self._shell.command([], {})
        options = options[: options.index(self._shell.name)]
        command = [ssh, *options, "-O", what, "-R", self._spec, self._shell.name]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )

    def _take(self) -> None:
        while True:
            self._room.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._hand_on, args=(connection,), daemon=True).start()

    def _hand_on(self, guest: socket.socket) -> None:
        with closing(guest), suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self._port))
            with closing(server):
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = Thread(target=_copy, args=(server, guest), daemon=True)
                back.start()
                _copy(guest, server)
                back.join()
        self._room.release()


def boot_commands() -> str:
    """Commands that a guest runs as root at its boot, so that programs can create their step
    directories.

    The server tells programs paths of its host, and programs create these paths. Their parent is
    set by mpi.conf or slurm.conf and is not always /tmp. Without the parent, Open MPI 5.0 goes on
    and crashes.
    """
    try:
        slurm_conf = find_files(None).slurm_conf
    except VicinalError:  # the job may use no PMIx
        return ""
    mpi_conf = slurm_conf.parent / "mpi.conf"
    base = setting(mpi_conf, "PMIxCliTmpDirBase") if mpi_conf.is_file() else None
    base = base or setting(slurm_conf, "TmpFS") or "/tmp"
    if base == "/tmp" or "%" in base or not base.startswith("/"):
        return ""
    return f"mkdir -p -m 1777 {shlex.quote(base)} || :\n"


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def moved(variables: Mapping[str, str], node: str, server: int, port: int) -> dict[str, str]:
    """The variables for a program in `node`, which reaches the PMIx server at `port` of its
    loopback.
    """

    def with_port(match: re.Match[str]) -> str:
        return f"{match[2]}{port if int(match[3]) == server else match[3]}{match[4]}"

    kept = {name: value for name, value in variables.items() if not _HOSTS.fullmatch(name)}
    for name, value in kept.items():
        match = _URI.fullmatch(f"{name}={value}")
        if match is not None:
            kept[name] = with_port(match)
    return kept | {
        "PMIX_HOSTNAME": node,
        "PMIX_MCA_gds": "hash",
        # The server accepts only the job's user.
        "VICINAL_GUEST_USER": f"{os.geteuid()}:{os.getegid()}",
    }
