"""The program of `vicinal-context.service`, which runs at each boot of an OpenNebula VM.

It reads the context, lets the owner's keys log in, sets up a job of several VMs, and runs the
owner's scripts. It reports everything on the console, in the journal and in
/var/lib/vicinal/context.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from vicinal.base.files import Durability, write_atomically
from vicinal.cluster.vm.image.appliance.context.cloud import user_of
from vicinal.cluster.vm.image.appliance.context.files import Account
from vicinal.cluster.vm.image.appliance.context.job import set_up_job
from vicinal.cluster.vm.image.appliance.context.owner import set_up_owner
from vicinal.cluster.vm.image.appliance.context.reading import ContextError, decoded, read_context

DISK = Path("/dev/disk/by-label/CONTEXT")
STATE = Path("/var/lib/vicinal")
_SYSTEM_SECONDS = 60
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    """Apply the context, and report errors instead of failing."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        sys.stdout.write(f"vicinal: {line}\n")
        sys.stdout.flush()

    STATE.mkdir(parents=True, exist_ok=True)
    report = STATE / "context"
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="context-", dir=STATE) as scratch:
        directory = Path(scratch) / "disk"
        directory.mkdir()
        try:
            system("mount", "-o", "ro,nosuid,nodev", str(DISK), str(directory))
        except ContextError as error:
            say(f"context: not read, {error}")
        else:
            try:
                contextualize(directory, Path(scratch), say)
            finally:
                subprocess.run(["umount", "--lazy", directory], check=False)
    write_atomically(report, "".join(f"{line}\n" for line in said), Durability.NONE)


def contextualize(directory: Path, scratch: Path, say: Callable[[str], None]) -> None:
    """Apply the context whose disk is mounted at `directory`."""
    try:
        context = read_context((directory / "context.sh").read_text(errors="replace"))
    except (OSError, ContextError) as error:
        say(f"context: not read, {error}")
        return
    account = None
    with suppress(KeyError):  # cloud-init's user data may have named another user
        entry = pwd.getpwnam(user_of(context))
        account = Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for what, set_up in (("owner", set_up_owner), ("job", set_up_job)):
        try:
            for service in set_up(context, Path("/"), account, say):
                system("systemctl", "try-reload-or-restart", service)
        except (OSError, ContextError) as error:
            say(f"{what}: not set up, {error}")
    run_scripts(context, directory, scratch, say)


def run_scripts(
    context: Mapping[str, str], directory: Path, scratch: Path, say: Callable[[str], None]
) -> None:
    """Run START_SCRIPT, then the files of INIT_SCRIPTS or else init.sh, one after the other.

    They run as root in the context's directory, with its variables. The shell runs a script without
    `#!`.
    """
    try:
        start = decoded(context, "START_SCRIPT")
    except ContextError as error:
        say(f"start script: not run, {error}")
        start = ""
    if start:
        script = scratch / "start-script"
        script.write_text(start if start.endswith("\n") else f"{start}\n")
        say(f"start script: {_run(script, context, directory)}")
    names = context.get("INIT_SCRIPTS", "").split()
    if not names and (directory / "init.sh").is_file():
        names = ["init.sh"]
    for number, name in enumerate(names):
        script = scratch / f"init-{number}"
        try:
            if "/" in name:
                raise FileNotFoundError(f"'{name}' is not a file of the context's disk")
            shutil.copyfile(directory / name, script)
        except OSError as error:
            say(f"{name}: not run, {error}")
            continue
        say(f"{name}: {_run(script, context, directory)}")


def _run(script: Path, context: Mapping[str, str], directory: Path) -> str:
    """Run a script without a time limit; returns its end as text."""
    script.chmod(0o700)
    has_interpreter = script.read_bytes().startswith(b"#!")
    command = [str(script)] if has_interpreter else ["/bin/sh", str(script)]
    base = {"PATH": _PATH, "HOME": "/root", "LANG": os.environ.get("LANG", "C.UTF-8")}
    try:
        status = subprocess.run(
            command, cwd=directory, env={**context, **base}, stdin=subprocess.DEVNULL, check=False
        ).returncode
    except (OSError, ValueError) as error:
        return f"could not be run, {error}"
    if status < 0:
        return f"was ended by signal {-status}"
    return "done" if status == 0 else f"failed, with status {status}"


def system(*command: str) -> None:
    """Run a command of the system. Raises ContextError, with its last line, if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SYSTEM_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ContextError(f"{command[0]} could not be run ({error})") from error
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ContextError(f"{' '.join(command)} failed ({reason})")
