"""A libvirt daemon with all its files in one directory: its settings, its start and its end.

The daemon has a session of its own, so that a terminal's Ctrl-C and hang-up do not reach it.
VMs do not need it: they run on when it ends, and the next daemon finds them by the directory.

    DIRECTORY/libvirt-sock     its socket
    DIRECTORY/claim            locked by the daemon while it lives
    DIRECTORY/log              its errors
    DIRECTORY/state, run, ...  its replacements of the system's directories; see mounts.py
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.base.daemon import (
    NotReadyError,
    await_ready,
    claimant,
    end,
    end_all,
    last_lines,
    launch,
    processes_with,
)
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import Durability, lock, write_atomically
from vicinal.cluster.vm.libvirt.own_daemon import reaper
from vicinal.cluster.vm.libvirt.own_daemon.mounts import MOUNTS, remove_mount_points
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import uri_of
from vicinal.host.libvirt_daemons import OWN_DAEMON, complaint_of, own_directory
from vicinal.host.system import Host

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_GENTLE_SECONDS = 10.0
_FREE_SECONDS = 2.0
"""Time for the kernel to release the locks of an ended daemon."""
_LOCK_SECONDS = 180.0
_POLL_SECONDS = 0.02
_SHOWN_LINES = 3
_LONGEST_SOCKET = 107
# VMs run as root and use root's files. A container may lack control groups, namespaces and
# security labels. Pinning works without them.
_QEMU = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
"""


def cache_directory() -> Path:
    """The directory where this user's daemons keep the capabilities of QEMUs for later daemons."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "vicinal" / "libvirt"


class Daemon:
    """The daemon with its files in a directory, whether it runs or not."""

    def __init__(self, directory: Path, cache: Path | None = None) -> None:
        self.directory = directory
        self._cache = cache
        self._socket = directory / "libvirt-sock"
        self._log = directory / "log"

    @classmethod
    def of_this_user(cls) -> "Daemon":
        """The daemon of this user's clusters."""
        return cls(own_directory(), cache_directory())

    @property
    def uri(self) -> str:
        """The URI of the daemon."""
        return uri_of(self._socket)

    @property
    def process(self) -> int | None:
        """Its process number; None if it does not run, 0 if it is in another PID namespace."""
        return claimant(self.directory / "claim")

    def answers(self) -> bool:
        """Whether it accepts connections."""
        return complaint_of(self._socket) is None

    def check(self) -> None:
        """Raise UnreachableError if it visibly cannot be started, without trying."""
        if Host().program(OWN_DAEMON) is None:
            raise UnreachableError(
                f"no libvirt of the system answers, and {OWN_DAEMON}, to start one, is not there",
                "on Debian, run `apt-get install libvirt-daemon libvirt-daemon-driver-qemu`, or "
                "name another connection in LIBVIRT_DEFAULT_URI",
            )
        room = _LONGEST_SOCKET - len("/libvirt-admin-sock")
        if len(os.fsencode(self.directory)) > room:
            raise UnreachableError(
                f"the path {self.directory} is too long for sockets in it",
                "set XDG_STATE_HOME to a shorter path",
            )

    def start(self) -> bool:
        """Ensure that it runs; returns whether this call started it.

        Raises UnreachableError, with its last output, if it does not answer; it is then ended.
        """
        if self.answers():
            return False
        self.check()
        with self._alone():
            return self._start()

    def end(self, wanted: Callable[[], bool] = lambda: False) -> bool:
        """End it and remove its directory; returns whether it did so.

        `wanted` returns whether the daemon is still needed. It is called while no other command can
        start or end the daemon. Running VMs are not ended. Raises VicinalError if the daemon
        does not end.
        """
        if not self.directory.is_dir():
            self._end_strays()
            return True
        with self._alone():
            if wanted():
                return False
            self._kill()
            deadline = time.monotonic() + _FREE_SECONDS
            while not remove_mount_points() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            try:
                shutil.rmtree(self.directory)
            except OSError as error:
                raise VicinalError(
                    f"{self.directory} could not be removed ({describe_os_error(error)})",
                    "remove it by hand",
                ) from error
        return True

    def _start(self) -> bool:
        if self.answers():  # another command has started it meanwhile
            return False
        try:
            alive = self._launch() if self.process is None else None
            try:
                await_ready(alive, _START_SECONDS, self.answers)
            except NotReadyError as error:
                raise self._not_started(str(error)) from error
            self._greet()
        except BaseException:
            self._kill()
            raise
        return True

    def _launch(self) -> int:
        """Start it; returns a descriptor that becomes readable when it ends."""
        program = Host().program(OWN_DAEMON) or Path(OWN_DAEMON)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_settings(self.directory, self._cache)
            self._socket.unlink(missing_ok=True)
            return launch(reaper.__name__, [str(self.directory), str(program)], self._log)
        except OSError as error:
            raise UnreachableError(
                f"the directory {self.directory} cannot be used ({describe_os_error(error)})",
                "set XDG_STATE_HOME to a directory that you may write to",
            ) from error
        except VicinalError as error:
            raise UnreachableError(error.message, error.remedy) from error

    def _greet(self) -> None:
        """Wait for an answer: the daemon listens before it has read its settings and VMs."""
        from vicinal.cluster.vm.libvirt.connection import connect  # imports libvirt

        try:
            with connect(self.uri):
                pass
        except UnreachableError as error:
            raise self._not_started(f"does not serve ({error.message})") from error

    def _kill(self) -> None:
        """End the process, if it runs, and wait. Raises VicinalError if it does not end."""
        name = f"the libvirt with {self.directory}"
        end(lambda: self.process, name, _END_SECONDS, gentle_seconds=_GENTLE_SECONDS)

    def _end_strays(self) -> None:
        """End a daemon whose directory was removed, because nobody can reach it any more."""
        ours = reaper.arguments(self.directory)
        end_all(processes_with(lambda words: words[1:] == ours), seconds=_END_SECONDS)
        remove_mount_points()

    def _not_started(self, what: str) -> UnreachableError:
        lines = last_lines(self._log, _SHOWN_LINES)
        said = " | ".join(lines) or "nothing"
        remedy = "correct the cause, or start libvirt by other means"
        if any(line.startswith(("unshare:", "mount:")) for line in lines):
            remedy = (
                "give this container the right to mount (CAP_SYS_ADMIN), start libvirt by other "
                "means, or be an unprivileged user, who needs no such right"
            )
        return UnreachableError(
            f"{OWN_DAEMON}, started because no libvirt of the system answers, {what}; it wrote: "
            f"{said}",
            remedy,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Prevent other commands from starting or ending the daemon. The kernel releases the lock
        of a process that ends.
        """
        above = self.directory.parent
        try:
            above.mkdir(parents=True, exist_ok=True)
            held = lock(above, seconds=_LOCK_SECONDS)
        except BlockingIOError:
            raise UnreachableError(
                f"another command has been starting or ending {self.uri} for {_LOCK_SECONDS:.0f} s",
                f"end this command if it hangs: `fuser {above}` names it",
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"the directory {above} cannot be used ({describe_os_error(error)})",
                "set XDG_STATE_HOME to a directory that you may write to",
            ) from error
        try:
            yield
        finally:
            os.close(held)


def write_settings(directory: Path, cache: Path | None = None) -> None:
    """Write all files that a daemon with this directory needs before it starts.

    What the daemon wrote there itself stays, such as its list of VMs, except records of
    processes that no longer exist on this host. `cache` is the directory for the capabilities of
    each QEMU, which take seconds to find out; without it they are in `directory`. Raises OSError.
    """
    if cache is not None:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = directory / "cache"
        link.unlink(missing_ok=True)
        link.symlink_to(cache)
    for name in MOUNTS:
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    (directory / "claim").touch(mode=0o600)
    (directory / "settings" / "qemu.conf").write_text(_QEMU)
    (directory / "libvirtd.conf").write_text(
        f'unix_sock_dir = "{directory}"\n'
        # Only root can enter the directory, so no further authentication is needed.
        'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'
        # Otherwise two daemons on one host would have the same identity.
        f'host_uuid = "{_identity(directory)}"\n'
    )
    _copy_names("passwd", directory, ["libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin"])
    _copy_names("group", directory, ["libvirt-qemu:x:64055:", "kvm:x:64056:"])
    _forget_processes(directory)


def _identity(directory: Path) -> str:
    """The host's UUID for this daemon, constant while the directory exists."""
    file = directory / "identity"
    if not file.exists():
        file.write_text(str(uuid.uuid4()))
    return file.read_text()


def _copy_names(name: str, directory: Path, wanted: list[str]) -> None:
    """Copy the host's present users or groups, and add `wanted`.

    libvirt requires Debian's users to exist, even if no VM runs as them. Their numbers do not
    matter.
    """
    lines = (Path("/etc") / name).read_text().splitlines()
    known = {line.partition(":")[0] for line in lines}
    lines += [line for line in wanted if line.partition(":")[0] not in known]
    write_atomically(directory / name, "".join(f"{line}\n" for line in lines), Durability.NONE)


def _forget_processes(directory: Path) -> None:
    """Remove records of processes of an earlier boot or of another container.

    Their numbers belong to other processes now, and libvirt would end those.
    """
    file, now = directory / "processes", process_space()
    if file.exists() and file.read_text() != now:
        shutil.rmtree(directory / "run")
        (directory / "run").mkdir(mode=0o700)
    file.write_text(now)


def process_space() -> str:
    """A string that changes with the meaning of process numbers: boot, PID namespace, its start."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    # The process's name, in parentheses, may contain spaces.
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot} {namespace} {first}"
