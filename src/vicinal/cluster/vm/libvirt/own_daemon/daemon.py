"""A libvirt daemon with everything of its own in one directory, from the command that starts it on.

It is in a session of its own, so that no terminal's Ctrl-C and no hang-up is for it. Machines do
without it: they go on when it ends, and the next one finds them by what is in the directory.

    DIRECTORY/libvirt-sock     what it is reached by
    DIRECTORY/claim            locked by it as long as it lives
    DIRECTORY/log              what it complained of
    DIRECTORY/state, run, ...  what it takes for the system's directories: mounts.py
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import vicinal
from vicinal.base.daemon import claimant
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.files import lock
from vicinal.cluster.vm.libvirt.own_daemon import keeper
from vicinal.cluster.vm.libvirt.own_daemon.mounts import remove_mount_points
from vicinal.cluster.vm.libvirt.own_daemon.settings import write_settings
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError
from vicinal.cluster.vm.libvirt.uri import uri_of
from vicinal.host.libvirt_daemons import OWN_DAEMON, complaint_of, own_directory
from vicinal.host.system import Host

_START_SECONDS = 60.0
_END_SECONDS = 20.0
_GENTLE_SECONDS = 10.0
_FREE_SECONDS = 2.0
"""For the kernel to drop the locks of a daemon that ended."""
_LOCK_SECONDS = 180.0
_POLL_SECONDS = 0.02
_SHOWN_LINES = 3
_LONGEST_SOCKET = 107


def cache_directory() -> Path:
    """What this user's daemons found out about QEMUs, for the next ones."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "vicinal" / "libvirt"


class Daemon:
    """The daemon whose things are in a directory, whether it runs or not."""

    def __init__(self, directory: Path, cache: Path | None = None) -> None:
        self.directory = directory
        self._cache = cache
        self._socket = directory / "libvirt-sock"
        self._log = directory / "log"

    @classmethod
    def of_this_user(cls) -> "Daemon":
        """The one that clusters of this user have."""
        return cls(own_directory(), cache_directory())

    @property
    def uri(self) -> str:
        """By which it is reached."""
        return uri_of(self._socket)

    @property
    def process(self) -> int | None:
        """Its process id; None where it does not run, 0 in another PID namespace."""
        return claimant(self.directory / "claim")

    def answers(self) -> bool:
        """Whether it takes connections."""
        return complaint_of(self._socket) is None

    def check(self) -> None:
        """Raise UnreachableError where it cannot be started, as far as is seen without trying."""
        if Host().program(OWN_DAEMON) is None:
            raise UnreachableError(
                f"no libvirt of the system's answers, and {OWN_DAEMON}, to start one, is not there",
                "on Debian `apt-get install libvirt-daemon libvirt-daemon-driver-qemu`, or name "
                "another connection in LIBVIRT_DEFAULT_URI",
            )
        room = _LONGEST_SOCKET - len("/libvirt-admin-sock")
        if len(os.fsencode(self.directory)) > room:
            raise UnreachableError(
                f"{self.directory} is too long for sockets in it",
                "let XDG_STATE_HOME name a shorter one",
            )

    def start(self) -> bool:
        """See that it runs, whoever starts it; returns whether it was this call that did.

        Raises UnreachableError where it does not come up, with the last that it wrote; it is ended
        then.
        """
        if self.answers():
            return False
        self.check()
        with self._alone():
            return self._start()

    def end(self, wanted: Callable[[], bool] = lambda: False) -> bool:
        """End it and remove all that it has; returns whether it did.

        `wanted` is asked whether somebody needs it, when nobody else can start or end it. Machines
        that run are not ended. Raises VicinalError where it does not end.
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
        if self.answers():  # by now: another command was faster
            return False
        deadline = time.monotonic() + _START_SECONDS
        alive = None
        try:
            if self.process is None:
                alive = self._launch()
            while not self.answers():
                ended = alive is not None and select.select([alive], [], [], 0)[0]
                if ended or time.monotonic() > deadline:
                    raise self._not_started(
                        "ended" if ended else f"did not answer within {_START_SECONDS:.0f} s"
                    )
                time.sleep(_POLL_SECONDS)
            self._greet()
        except BaseException:
            self._kill()
            raise
        else:
            return True
        finally:
            if alive is not None:
                os.close(alive)

    def _launch(self) -> int:
        """Start it; a descriptor that can be read from when it has ended."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_settings(self.directory, self._cache)
            self._socket.unlink(missing_ok=True)
        except OSError as error:
            raise UnreachableError(
                f"the directory {self.directory} cannot be used ({describe_os_error(error)})",
                "let XDG_STATE_HOME name one that you may write to",
            ) from error
        program = Host().program(OWN_DAEMON) or Path(OWN_DAEMON)
        ours, theirs = os.pipe()
        # setsid forks, so that it is nobody's child who may have to reap it.
        line = [
            *("setsid", "--fork", sys.executable, "-P", "-m", keeper.__name__),
            *(str(self.directory), str(program), str(theirs)),
        ]
        try:
            with self._log.open("ab") as log:
                subprocess.run(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"PYTHONPATH": str(Path(vicinal.__file__).parents[1])},
                    pass_fds=(theirs,),
                    cwd="/",
                    check=True,
                )
        except (OSError, subprocess.CalledProcessError) as error:
            os.close(ours)
            raise UnreachableError(
                "the tool setsid cannot be used", "install util-linux, with its programs in PATH"
            ) from error
        finally:
            os.close(theirs)
        return ours

    def _greet(self) -> None:
        """Be answered: it takes connections before it has looked at its settings and machines."""
        from vicinal.cluster.vm.libvirt.connection import connect  # who never starts it needs none

        try:
            with connect(self.uri):
                pass
        except UnreachableError as error:
            raise self._not_started(f"does not serve ({error.message})") from error

    def _kill(self) -> None:
        """End the process, if it runs, and wait for that. Raises VicinalError."""
        begun = time.monotonic()
        while (process := self.process) is not None:
            waited = time.monotonic() - begun
            if process == 0:
                raise VicinalError(
                    f"the libvirt with {self.directory} is in another PID namespace",
                    "call this command where `vicinal up` was called, such as in the container",
                )
            if waited > _END_SECONDS:
                raise VicinalError(
                    f"the libvirt with {self.directory}, process {process}, does not end",
                    "end it by hand",
                )
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process)
                try:
                    # Not another that has got its number meanwhile.
                    if self.process == process:
                        gentle = waited < _GENTLE_SECONDS
                        number = signal.SIGTERM if gentle else signal.SIGKILL
                        signal.pidfd_send_signal(descriptor, number)
                    select.select([descriptor], [], [], 1.0)
                finally:
                    os.close(descriptor)

    def _end_strays(self) -> None:
        """End one whose directory somebody removed: nobody can reach it any more."""
        import psutil

        words = keeper.arguments(self.directory)
        found = [
            process
            for process in psutil.process_iter(["cmdline"])
            if (process.info["cmdline"] or [])[1:] == words
        ]
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, _END_SECONDS)
        remove_mount_points()

    def _not_started(self, what: str) -> UnreachableError:
        lines: list[str] = []
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
        said = " | ".join(lines[-_SHOWN_LINES:]) or "nothing"
        remedy = "see what it lacks, or start libvirt by other means"
        if any(line.startswith(("unshare:", "mount:")) for line in lines[-_SHOWN_LINES:]):
            remedy = (
                "give this container the right to mount (CAP_SYS_ADMIN), start libvirt by other "
                "means, or be an ordinary user, who needs no such right"
            )
        return UnreachableError(
            f"{OWN_DAEMON}, started since no libvirt of the system's answers, {what}; it wrote: "
            f"{said}",
            remedy,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other commands from starting or ending it; the kernel drops the lock of a process
        that ends."""
        above = self.directory.parent
        try:
            above.mkdir(parents=True, exist_ok=True)
            held = lock(above, seconds=_LOCK_SECONDS)
        except BlockingIOError:
            raise UnreachableError(
                f"another command has been starting or ending {self.uri} for {_LOCK_SECONDS:.0f} s",
                f"end it, if it hangs: `fuser {above}` names it",
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"the directory {above} cannot be used ({describe_os_error(error)})",
                "let XDG_STATE_HOME name one that you may write to",
            ) from error
        try:
            yield
        finally:
            os.close(held)
