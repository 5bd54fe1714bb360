"""Installing Debian into the appliance's disk with mmdebstrap: as root, or in a user namespace.

An unprivileged user is root in a user namespace with further users from /etc/subuid. So packages
install as usual, and files get their owners. Only the disk leaves the namespace.
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
"""Time limit of the installation, against mirrors that send a byte now and then."""
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
"""Beginnings of mmdebstrap's messages, and Vicinal's messages for them."""

_SHARED_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED = 4 << 30
SYSTEM_SIZE = 1400 << 20
"""Size in bytes of the system during the installation, with its packages."""


def build_directory() -> Path:
    """The directory for the installation: TMPDIR, or memory if there is enough, or /var/tmp.

    dpkg waits for the disk at each step, and in memory this takes no time.
    """
    chosen = os.environ.get("TMPDIR")
    if chosen:
        return Path(chosen)
    with suppress(OSError):
        filesystem = os.statvfs(_SHARED_MEMORY)
        roomy = filesystem.f_bavail * filesystem.f_frsize >= SYSTEM_SIZE + (SYSTEM_SIZE >> 1)
        if roomy and not filesystem.f_flag & os.ST_NOEXEC and _available_memory() >= _MEMORY_NEEDED:
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
    """Write the appliance's root file system to its place on the disk.

    The files of `archive` replace files of the system. `packages` is a directory with earlier
    downloads. All packages of this installation are moved to `fetched`, a directory that is
    created. `log_file` receives all output. Removes all temporary files, also after an error.
    Raises VicinalError if the installation fails.
    """
    fetched.mkdir()
    directory = build_directory() / f"vicinal-appliance-{os.geteuid()}-{identity.key}"
    _remove(directory)  # left by a process that was killed
    directory.mkdir(mode=0o755)
    # In the namespace this user's files belong to another user. The disk is in a directory that is
    # closed to others. So it is opened by its descriptor, and everybody must be able to write it.
    disk.chmod(0o666)
    descriptor = os.open(disk, os.O_RDWR)
    try:
        environment = tool_environment() | {
            "TMPDIR": str(directory),
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
        _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a directory of this user with files of the namespace's users, left by mmdebstrap."""
    if not os.path.lexists(directory):
        return
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise VicinalError(
            f"{directory} exists and belongs to another user", "set TMPDIR to another directory"
        )
    # The kernel may still be ending processes that work there.
    for _ in range(_REMOVE_TRIALS):
        find = ["find", f"{directory}/", "-xdev", "-mindepth", "2", "-delete"]
        if os.geteuid() != 0:
            find = ["mmdebstrap", "--unshare-helper", *find]
        subprocess.run(find, cwd="/", capture_output=True, check=False, env=tool_environment())
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(1)
    raise VicinalError(
        f"{directory} cannot be removed by this user",
        "remove it, or set TMPDIR to another directory",
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
    # Otherwise root's mounts would be visible on the host, and stay if the command is killed.
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
    """Options of this host's apt for reaching its mirrors: proxies, time limits, checks."""
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
            start_new_session=True,  # Ctrl-C reaches only this process, which ends mmdebstrap
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
                f"building the appliance did not end within {_SECONDS} s",
                "check whether the Debian mirror of this host's apt configuration answers",
            )
        log.seek(0)
        raise bootstrap_failed(log.read().splitlines(), log_file)


def _end(process: subprocess.Popen[str]) -> None:
    """End mmdebstrap and its children; on SIGTERM it first removes what it created."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def bootstrap_failed(lines: Sequence[str], log_file: Path) -> VicinalError:
    """An error with the cause of mmdebstrap's failure, from the lines that it wrote."""
    for line in lines:
        if "No space left on device" in line or "Could not allocate" in line:
            return VicinalError(
                f"there is no room for the appliance ({line.strip()})",
                f"make room in {build_directory()}, or set TMPDIR to another directory",
            )
    for line in lines:
        if line.startswith(("Err:", "E: Failed to fetch", "W: Failed to fetch", "E: Unable to")):
            return VicinalError(
                f"the appliance's packages could not be fetched ({line.strip()})",
                "check whether `apt-get update` works on this host",
            )
    ours = [line.removeprefix("E: vicinal: ") for line in lines if line.startswith("E: vicinal: ")]
    if ours:
        return VicinalError(ours[0], "run vicinal with Debian's own Python, /usr/bin/python3")
    # The last line of another program is the cause. mmdebstrap's own errors follow it.
    said: Iterable[str] = takewhile(lambda line: not line.startswith("E:"), lines)
    reasons = [line for line in said if line.strip() and not line.startswith("I:")]
    reason = (reasons or list(lines) or ["no message"])[-1]
    return VicinalError(
        f"mmdebstrap could not build the appliance ({reason.strip()})",
        f"see the whole output in {log_file}",
    )
