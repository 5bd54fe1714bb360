"""A Slurm task whose node is a virtual machine: runs the program there, and ends with its status.

    PYTHON -I -m vicinal.integrations.slurm.guest_task SUPERVISOR DIRECTORY NODE PORT
        -- PROGRAM ARGUMENT...

Slurm's plugin replaces the task by this program (slurm/job_nodes.c). This program passes on the
streams, the connection to PMI, and the signals that the task has from slurmstepd. SUPERVISOR is the
supervisor's process id. PORT is the port of the step's PMIx server on the host's loopback, or 0 if
there is none.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, PollSelector
from typing import NoReturn

from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.guest.shell import GuestShell
from vicinal.cluster.vm.image.layout import GUEST_TASK, HOME, USER
from vicinal.integrations.slurm import guest_stream
from vicinal.integrations.slurm.guest_pmix import GuestPmix, moved
from vicinal.integrations.slurm.guest_stream import Kind

GUESTS = "guests"
"""Directory of keys and sockets, below the supervisor's directory."""
TASKS = "tasks.json"
"""JSON file for tasks: the variables to set, and the host's paths that the guests have."""
_CHUNK = 32768
_OWN = ("/bin/", "/sbin/", "/lib/", "/usr/")
"""Paths that are the guest's own, even if the host has a file of the same name."""
_HANDED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGALRM, signal.SIGTERM, signal.SIGCONT, signal.SIGURG, signal.SIGXCPU),
)
_HOSTS = ("VICINAL_REGION", "TMPDIR", "PWD", "OLDPWD", "SHELL")
"""Variables that describe the host."""
_PMI = "PMI_FD"
_PMI_DESCRIPTOR = "3"
"""The program's descriptor for PMI: guest/program.c."""


def main() -> None:
    """Run the program that the arguments name, and end with its status."""
    supervisor, directory, node, port, _, *command = sys.argv[1:]
    guests = Path(f"/proc/{supervisor}/root{directory}") / GUESTS
    try:
        told = json.loads((guests / TASKS).read_text())
        shell = _shell(node, guests)
        program = [placed(command[0], told["holds"], shell, guests), *command[1:]]
        variables = _variables(told["environment"])
        end = _with_pmix(shell, program, variables, int(port), Path(directory) / GUESTS, guests)
        _end_as(end, node)
    except VicinalError as error:
        sys.exit(f"vicinal: error: {error}")
    except OSError as error:
        sys.exit(f"vicinal: error: the node {node} has ended ({error}): start the job again")


def _with_pmix(
    shell: GuestShell,
    program: Sequence[str],
    variables: dict[str, str],
    server: int,
    inside: Path,
    guests: Path,
) -> tuple[Kind, bytes] | None:
    """As _run(), with a PMIx socket in the guest if `server` is not 0.

    `inside` is the path of `guests` as the supervisor sees it.
    """
    if server == 0:
        return _run(shell, program, variables)
    pmix = GuestPmix(shell, server, guests, inside)
    try:
        return _run(shell, program, moved(variables, shell.name, server, pmix.open()))
    finally:
        pmix.close()


def placed(program: str, holds: Sequence[str], shell: GuestShell, guests: Path) -> str:
    """The guest's path of a program of this host; copies the program into the guest if needed.

    Raises VicinalError if the guest has no room for the program.
    """
    if "/" not in program:
        return program
    path = Path(os.path.normpath(Path.cwd() / program))
    if str(path).startswith(_OWN) or any(path.is_relative_to(each) for each in holds):
        return str(path)
    try:
        status = path.stat()
    except OSError:
        return str(path)  # the guest may have this program
    key = f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    target = f"{HOME}/{key}/{path.name}"
    with locked(guests / "programs" / shell.name):
        mark = guests / "programs" / shell.name / key
        if not mark.exists():
            if shell.run(["mkdir", "-p", f"{HOME}/{key}"]).returncode != 0:
                raise shell.failure(f"the guest has no room for {path}")
            shell.copy_in(path, target)
            mark.touch()
    return target


def _shell(node: str, guests: Path) -> GuestShell:
    def failure(what: str) -> VicinalError:
        return VicinalError(f"{node}: {what}", "start the job again")

    return GuestShell(node, guests, Keys(guests), alive=lambda _: guests.exists(), failure=failure)


def _variables(given: dict[str, str]) -> dict[str, str]:
    """The program's variables: the job's, without variables that describe the host."""
    own = {name: value for name, value in os.environ.items() if name not in _HOSTS}
    own |= {"HOME": HOME, "USER": USER, "LOGNAME": USER, **given}
    if _PMI in own:
        own[_PMI] = _PMI_DESCRIPTOR
    return own


def _run(
    shell: GuestShell, program: Sequence[str], variables: dict[str, str]
) -> tuple[Kind, bytes] | None:
    """Run the program to its end; returns its last frame, or None if the guest has ended.

    Raises VicinalError if the arguments or variables are too long for a frame.
    """
    # Slurm signals all processes of a task; ssh must leave signals to this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    connection = subprocess.Popen(
        shell.command([GUEST_TASK], {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    for number in _HANDED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert connection.stdin is not None
    assert connection.stdout is not None
    try:
        to, come = connection.stdin.fileno(), connection.stdout.fileno()
        with suppress(BrokenPipeError):
            guest_stream.write_start(to, program, variables, str(Path.cwd()))
        return _stand_between(to, come, woken)
    except guest_stream.TooLongError as error:
        raise VicinalError(
            f"the program's arguments or variables are too long ({error})", "shorten them"
        ) from error


def _stand_between(to: int, come: int, woken: socket.socket) -> tuple[Kind, bytes] | None:
    """Pass frames until the program has ended; returns its last frame, or None if the guest has
    ended.

    Data for a closed stream is dropped, because the program's status may still arrive.
    """
    pmi = int(os.environ.get(_PMI, "-1"))
    sources = {0: Kind.INPUT, **({pmi: Kind.PMI} if pmi >= 0 else {})}
    ends = {kind: number for number, kind in sources.items()}
    with PollSelector() as selector:
        selector.register(come, EVENT_READ)
        selector.register(woken, EVENT_READ)
        for number in sources:
            selector.register(number, EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    for number in woken.recv(_CHUNK):
                        with suppress(BrokenPipeError):
                            guest_stream.write(to, Kind.SIGNAL, bytes([number]))
                elif key.fd == come:
                    frame = guest_stream.read(come)
                    if frame is None or frame[0] in (Kind.EXITED, Kind.KILLED, Kind.FAILED):
                        return frame
                    try:
                        _take(frame, ends, selector)
                    except (KeyError, ValueError):  # a frame that is not possible now
                        return None
                else:
                    _hand_on(key.fd, sources[key.fd], to)
                    selector.unregister(key.fd)  # until the guest has taken this input


def _hand_on(source: int, kind: Kind, to: int) -> None:
    try:
        content = os.read(source, _CHUNK)
    except OSError:  # the stream is closed, or is a terminal that has ended
        content = b""
    with suppress(BrokenPipeError):
        guest_stream.write(to, kind, content)


def _take(frame: tuple[Kind, bytes], ends: dict[Kind, int], selector: PollSelector) -> None:
    kind, content = frame
    if kind is Kind.TAKEN:
        selector.register(ends[Kind(content)], EVENT_READ)
    else:
        end = {Kind.OUTPUT: 1, Kind.ERRORS: 2, Kind.PMI: ends.get(Kind.PMI, 2)}[kind]
        with suppress(BrokenPipeError):
            while content:
                content = content[os.write(end, content) :]


def _end_as(end: tuple[Kind, bytes] | None, node: str) -> NoReturn:
    if end is None:
        sys.exit(f"vicinal: error: the node {node} has ended, and its programs have ended with it")
    kind, content = end
    if kind is Kind.FAILED:
        said = content.decode(errors="replace")
        sys.exit(f"vicinal: error: the program was not started in the node {node}: {said}")
    if kind is Kind.KILLED and content[0] in signal.valid_signals():
        with suppress(OSError):  # signals whose action cannot be changed
            signal.signal(content[0], signal.SIG_DFL)
        os.kill(os.getpid(), content[0])
    sys.stdout.flush()
    os._exit(content[0])


if __name__ == "__main__":
    main()
