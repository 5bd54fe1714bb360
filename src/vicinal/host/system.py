"""Access to the examined host: its files below a root directory, and its programs.

    host = Host()
    host.text("proc/cmdline")
    host.ask("qemu-system-x86_64", "--version")

Files of sysfs and procfs come and go, and this user may not read all of them. An unreadable file
gives None, never an error.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_MOST_BYTES = 2 << 20
"""More than /proc/cpuinfo with a thousand processors has; files of /proc/sys refuse reads of 4
MiB."""
_ASK_SECONDS = 20

_SYSTEM_PROGRAMS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec")
"""Directories of daemons, which an ordinary user's PATH lacks."""


def _search_path() -> str:
    own = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([own, *_SYSTEM_PROGRAMS])


@dataclass(frozen=True)
class Host:
    """The directories to examine. The defaults are those of the host that this process runs on."""

    root: Path = Path("/")
    """The directory that holds sys, proc, dev and run."""
    search: str = field(default_factory=_search_path)
    """Directories of programs, in the notation of PATH."""
    user: int = field(default_factory=os.geteuid)
    """The user for whom the host is examined. Programs still run as this process's user."""

    def path(self, path: str | Path) -> Path:
        """Return a file or directory; `path` is relative to the root."""
        return self.root / path

    def text(self, path: str | Path) -> str | None:
        """Return a file's text without white space at its ends; None if the file cannot be read."""
        try:
            with self.path(path).open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace").strip("\0 \t\r\n")
        except OSError:
            return None

    def number(self, path: str | Path) -> int | None:
        """Return a file's number, decimal or as 0x1af4; None if there is no number below 2^64."""
        text = self.text(path)
        if text is None:
            return None
        try:
            number = int(text, 0)
        except ValueError:
            return None
        return number if abs(number) < 1 << 64 else None

    def names(self, path: str | Path) -> list[str]:
        """Return the names in a directory in natural order (eth2 before eth10); empty if there is
        no directory."""
        try:
            return sorted((entry.name for entry in os.scandir(self.path(path))), key=_natural)
        except OSError:
            return []

    def link(self, path: str | Path) -> str | None:
        """Return the target of a symbolic link; None if there is no link."""
        try:
            return str(self.path(path).readlink())
        except OSError:
            return None

    def link_name(self, path: str | Path) -> str | None:
        """Return the last part of a symbolic link's target, such as a device's driver; None if
        there is no link."""
        link = self.link(path)
        return None if link is None else Path(link).name

    def exists(self, path: str | Path) -> bool:
        """Whether a file or directory exists and is visible to this user."""
        try:
            return self.path(path).exists()
        except OSError:
            return False

    def may(self, path: str | Path, mode: int) -> bool:
        """Whether this user may access a file in this mode (os.R_OK, os.W_OK)."""
        return os.access(self.path(path), mode)

    def program(self, *names: str) -> Path | None:
        """Return the first of these programs that is installed; None if none is."""
        for name in names:
            found = shutil.which(name, path=self.search)
            if found is not None:
                return Path(found)
        return None

    def ask(self, program: str | Path, *arguments: str) -> str | None:
        """Return a program's output; None if the program is missing, fails, or takes more than 20
        s."""
        answer = self.try_program(program, *arguments)
        return answer.output if answer.worked else None

    def try_program(self, program: str | Path, *arguments: str) -> "Answer":
        """Run a program to its end, for at most 20 s, and return its output or its complaint."""
        found = self.program(str(program))
        if found is None:
            return Answer(False, "", f"{program} was not found")
        try:
            done = subprocess.run(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ASK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(False, "", f"{program} did not end within {_ASK_SECONDS} s")
        except OSError as error:
            return Answer(False, "", f"{program}: {error.strerror}")
        lines = done.stderr.strip().splitlines()
        complaint = lines[-1] if lines else f"{program} ended with status {done.returncode}"
        return Answer(done.returncode == 0, done.stdout, complaint)

    @cached_property
    def kernel_options(self) -> dict[str, str]:
        """Options of the kernel's command line: value by name; the value is empty for an option
        without one."""
        options = {}
        for word in (self.text("proc/cmdline") or "").split():
            if word == "--":  # the rest is for the first process
                break
            name, _, value = word.partition("=")
            options[name] = value
        return options

    @cached_property
    def is_virtual(self) -> bool:
        """Whether this host is a virtual machine, according to its processor flags or device
        tree."""
        flags = re.search(r"^flags\s*:(.*)$", self.text("proc/cpuinfo") or "", re.M)
        said = flags is not None and "hypervisor" in flags[1].split()
        return said or self.exists("proc/device-tree/hypervisor")

    @cached_property
    def mounts(self) -> dict[str, str]:
        """File system type by mount point; the latest mount on a point counts."""
        found = {}
        for line in (self.text("proc/self/mounts") or "").splitlines():
            fields = line.split()
            if len(fields) >= 3:
                found[fields[1]] = fields[2]
        return found

    @cached_property
    def capabilities(self) -> int:
        """Effective capabilities of this process as a bit mask (see capabilities(7))."""
        found = re.search(r"^CapEff:\s*([0-9a-f]+)", self.text("proc/self/status") or "", re.M)
        return int(found[1], 16) if found else 0


@dataclass(frozen=True)
class Answer:
    """The result of running a program."""

    worked: bool
    output: str
    complaint: str
    """The last line of the program's error output, if the program failed."""


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in re.split(r"([0-9]+)", name)
    ]
