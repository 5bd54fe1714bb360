"""Run a command in a host of its own, and report what the command left behind there.

The host consists of namespaces. Its processes, mounts, network, System V memory, /dev/shm and /tmp
begin empty, so that nothing else on this machine can show in them.

    python private_host.py JSON

JSON has: command (list), keep (directories that stay visible under /tmp), signal (number to send to
the command after it wrote "ready", or null). Prints a JSON object with status, output, before and
after.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from vicinal.host import namespaces as kernel

GUARD_SECONDS = 60.0


def main() -> None:
    request = json.loads(sys.argv[1])
    kernel.enter_namespaces(
        kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
    )
    init = os.fork()
    if init == 0:
        kernel.die_with_parent()
        make_private([Path(directory) for directory in request["keep"]])
        json.dump(observe(request), sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(init, 0)
    sys.exit(os.waitstatus_to_exitcode(status) != 0)


def make_private(keep: list[Path]) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("proc", "/proc", "proc")
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", options="mode=1777")
    kept = [(path, os.open(path, os.O_PATH)) for path in keep if path.is_relative_to("/tmp")]
    kernel.mount("tmpfs", "/tmp", "tmpfs", options="mode=1777")
    for path, descriptor in kept:
        path.mkdir(parents=True, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", str(path), flags=kernel.MS_BIND)
        os.close(descriptor)


def observe(request: dict[str, Any]) -> dict[str, Any]:
    keep = [Path(directory) for directory in request["keep"]]
    before = snapshot(keep)
    command = subprocess.Popen(
        request["command"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=keep[0],
        start_new_session=True,
    )
    assert command.stdout is not None
    output = ""
    if request["signal"] is not None:
        for line in command.stdout:
            output += line
            if line == "ready\n":
                break
        number = signal.Signals(request["signal"])
        if number is signal.SIGINT:
            os.killpg(command.pid, number)  # as a terminal does for Ctrl-C
        else:
            command.send_signal(number)
    output += command.communicate(timeout=GUARD_SECONDS)[0]
    wait_for_orphans()
    return {
        "status": command.returncode,
        "output": output,
        "before": before,
        "after": snapshot(keep),
    }


def wait_for_orphans() -> None:
    """Reap orphans until none is left. After the time limit, the test reports the rest."""
    deadline = time.monotonic() + GUARD_SECONDS
    while len(processes()) > 0 and time.monotonic() < deadline:
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.01)


def processes() -> list[str]:
    """Command lines of all other processes (NUL between words), or their numbers if empty."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and directory.name != "1":
            with suppress(FileNotFoundError, ProcessLookupError):  # the process just ended
                found.append((directory / "cmdline").read_text() or directory.name)
    return found


def snapshot(keep: list[Path]) -> dict[str, list[str]]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": processes(),
        "mounts": sorted(" ".join(line.split()[3:5]) for line in mounts),
        "interfaces": sorted(path.name for path in Path("/proc/sys/net/ipv4/conf").iterdir()),
        "sysv": Path("/proc/sysvipc/shm").read_text().splitlines()[1:],
        "files": sorted(
            str(path)
            for folder in ("/dev/shm", "/tmp")
            for path in Path(folder).rglob("*")
            if not any(path.is_relative_to(kept) or kept.is_relative_to(path) for kept in keep)
        ),
    }


if __name__ == "__main__":
    main()
