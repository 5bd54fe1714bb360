"""Installing Debian into the appliance's disk with mmdebstrap: as root, or in a user namespace.

An ordinary user is root of a namespace in which further users exist, those that /etc/subuid gives.
There packages are installed as ever and files get their owners; what leaves it is the disk alone.
"""

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.image.appliance.disk_layout import ROOT_OFFSET, ROOT_SIZE, Identity
from vicinal.cluster.vm.image.appliance.packages import FILES_KEPT, FILES_LEFT_OUT, PACKAGES
from vicinal.cluster.vm.image.appliance.tools import tool_environment

_SECONDS = 1800
"""For all of it: a guard against mirrors that send a byte now and then."""
_END_SECONDS = 60
_REMOVE_TRIALS = 5
_HERE = Path(__file__).parent

_STEPS = {
    "running apt-get update": "reading the mirror's lists of packages",
    "downloading packages": "fetching Debian packages",
    "extracting archives": "unpacking the base system",
    "installing essential packages": "installing the base system",
    "installing remaining packages": "installing kernel, MPI and RDMA",
    "vicinal: ": "",
}
"""What mmdebstrap says, and what we say then."""

_SHARED_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED = 4 << 30
SYSTEM_SIZE = 1400 << 20
"""Bytes of the system while it is being made, with the packages that it is made of."""


def build_place() -> Path:
    """The directory where the system is made: TMPDIR, or memory if there is plenty, or /var/tmp.

    dpkg waits for the disk at every step; in memory that takes no time.
    """
    chosen = os.environ.get("TMPDIR")
    if chosen:
        return Path(chosen)
    with suppress(OSError):
        place = os.statvfs(_SHARED_MEMORY)
        roomy = place.f_bavail * place.f_frsize >= SYSTEM_SIZE + (SYSTEM_SIZE >> 1)
        if roomy and not place.f_flag & os.ST_NOEXEC and _available_memory() >= _MEMORY_NEEDED:
            return _SHARED_MEMORY
    return Path("/var/tmp")


def _available_memory() -> int:
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found.group(1)) << 10 if found else 0


def bootstrap(
    disk: Path,
    archive: Path,
    packages: Path,
    fetched: Path,
    release: str,
    sources: Sequence[str],
    identity: Identity,
    log_file: Path,
    say: Callable[[str], None],
) -> None:
    """Write the appliance's root file system into its place on the disk.

    `archive` is laid over the system; `packages` is a directory with packages that were fetched
    before, and all of this time come into `fetched`, a directory that is made. `log_file` gets all
    that is said meanwhile. All temporary files are gone afterwards, also after an error, which is a
    VicinalError.
    """
    fetched.mkdir()
    place = build_place() / f"vicinal-appliance-{os.geteuid()}-{identity.key}"
    _remove(place)  # of a process that was killed
    place.mkdir(mode=0o755)
    # In the namespace this user's files are a stranger's: the disk, in a directory that is closed
    # to others, is opened by its descriptor, and so must let everybody write.
    disk.chmod(0o666)
    descriptor = os.open(disk, os.O_RDWR)
    try:
        environment = tool_environment() | {
            "TMPDIR": str(place),
            "VICINAL_DISK": f"/proc/self/fd/{descriptor}",
            "VICINAL_OFFSET": str(ROOT_OFFSET),
            "VICINAL_SIZE": str(ROOT_SIZE),
            "VICINAL_UUID": str(identity.root),
            "VICINAL_HASH_SEED": str(identity.hash_seed),
        }
        command = _command(archive, packages, fetched, release, sources)
        _run(command, environment, descriptor, log_file, say)
    finally:
        os.close(descriptor)
        _remove(place)


def _remove(place: Path) -> None:
    """Remove a directory of ours, with what mmdebstrap left there of the namespace's users."""
    if not os.path.lexists(place):
        return
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise VicinalError(
            f"{place} is there, and is somebody else's", "let TMPDIR name another directory"
        )
    # The kernel may be just ending processes that work there.
    for _ in range(_REMOVE_TRIALS):
        find = ["find", f"{place}/", "-xdev", "-mindepth", "2", "-delete"]
        if os.geteuid() != 0:
            find = ["mmdebstrap", "--unshare-helper", *find]
        subprocess.run(find, cwd="/", capture_output=True, check=False, env=tool_environment())
        shutil.rmtree(place, ignore_errors=True)
        if not place.exists():
            return
        time.sleep(1)
    raise VicinalError(
        f"{place} cannot be removed by this user", "remove it, or let TMPDIR name another directory"
    )


def _command(
    archive: Path, packages: Path, fetched: Path, release: str, sources: Sequence[str]
) -> list[str]:
    archives = "/var/cache/apt/archives/"
    hooks = {
        "setup": (
            f'mkdir -p "$1{archives}partial"',
            f"sync-in {shlex.quote(str(packages))} {archives}",
        ),
        "essential": (f"tar-in {shlex.quote(str(archive))} /",),
        "customize": (
            'rm -rf "$1/var/cache/apt/archives/partial" "$1/var/cache/apt/archives/lock"',
            f"sync-out {archives} {shlex.quote(str(fetched))}",
            (_HERE / "finish.sh").read_text(),
        ),
    }
    # What root mounts would be seen by the host, and stay there if the command is killed.
    command = ["unshare", "--mount", "--"] if os.geteuid() == 0 else []
    command += ["mmdebstrap", "--variant=apt", "--format=null", "--architectures=amd64"]
    command.append(f"--mode={'root' if os.geteuid() == 0 else 'unshare'}")
    command += ["--skip=essential/unlink", "--skip=cleanup", f"--include={','.join(PACKAGES)}"]
    command.append("--dpkgopt=force-unsafe-io")
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in FILES_LEFT_OUT]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in FILES_KEPT]
    command += [f"--aptopt={option}" for option in _apt_options()]
    command += [f"--{name}-hook={hook}" for name, each in hooks.items() for hook in each]
    return [*command, release, "/dev/null", *sources]


def _apt_options() -> list[str]:
    """How this host's apt is configured to reach its mirrors: proxies, time limits, checks."""
    dump = subprocess.run(
        ["apt-config", "dump", "--no-empty", "Acquire"], capture_output=True, text=True, check=False
    )
    wanted = re.compile(r"Acquire::(https?|ftp|Check-[\w-]+|Retries|ForceIPv[46])(::\S+)? ", re.I)
    return [line for line in dump.stdout.splitlines() if wanted.match(line)]


def _run(
    command: Sequence[str],
    environment: dict[str, str],
    descriptor: int,
    log_file: Path,
    say: Callable[[str], None],
) -> None:
    with log_file.open("w+") as log:
        process = subprocess.Popen(
            command,
            cwd="/",  # the namespace's root may not enter this user's directories
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C is for us, who then end it in order
        )
        assert process.stderr is not None
        guard = threading.Timer(_SECONDS, _end, [process])
        guard.start()
        try:
            for line in process.stderr:
                log.write(line)
                for beginning, step in _STEPS.items():
                    rest = line.removeprefix("I: ").strip()
                    if rest.startswith(beginning):
                        say(step or rest.removeprefix(beginning))
            status = process.wait(_END_SECONDS)
        finally:
            expired = not guard.is_alive()
            guard.cancel()
            _end(process)
            process.stderr.close()
        if status == 0:
            return
        if expired:
            raise VicinalError(
                f"making the appliance did not end within {_SECONDS} s",
                "see whether the Debian mirror of this host's apt configuration answers",
            )
        log.seek(0)
        raise bootstrap_failed(log.read().splitlines(), log_file)


def _end(process: subprocess.Popen[str]) -> None:
    """End mmdebstrap and what it runs, if it still does; it removes what it made, and then ends."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def bootstrap_failed(lines: Sequence[str], log_file: Path) -> VicinalError:
    """The error that says why mmdebstrap failed, of the lines that it wrote."""
    for line in lines:
        if "No space left on device" in line or "Could not allocate" in line:
            return VicinalError(
                f"there is no room for the appliance ({line.strip()})",
                f"make room in {build_place()}, or let TMPDIR name another directory",
            )
    for line in lines:
        if line.startswith(("Err:", "E: Failed to fetch", "W: Failed to fetch", "E: Unable to")):
            return VicinalError(
                f"the appliance's packages could not be fetched ({line.strip()})",
                "see whether `apt-get update` works on this host",
            )
    ours = [line.removeprefix("E: vicinal: ") for line in lines if line.startswith("E: vicinal: ")]
    if ours:
        return VicinalError(ours[0], "run vicinal with Debian's own Python, /usr/bin/python3")
    # What a program said last is the cause; mmdebstrap's own complaints come after it.
    said: Iterable[str] = takewhile(lambda line: not line.startswith("E:"), lines)
    reasons = [line for line in said if line.strip() and not line.startswith("I:")]
    reason = (reasons or list(lines) or ["no message"])[-1]
    return VicinalError(
        f"mmdebstrap could not make the appliance ({reason.strip()})",
        f"see all that it said in {log_file}",
    )
