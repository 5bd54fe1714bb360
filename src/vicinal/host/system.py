"""The host that is examined: its files, below a root directory, and its programs.

    host = Host()
    host.text("proc/cmdline")
    host.ask("qemu-system-x86_64", "--version")

Files of sysfs and procfs come and go, and some cannot be read: what cannot is None, never an error.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_MOST_BYTES = 2 << 20
"""More than /proc/cpuinfo has with a thousand processors; /proc/sys refuses to be read by 4 MiB."""
_ASK_SECONDS = 20

_SYSTEM_PROGRAMS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/libexec")
"""Daemons are there, and an ordinary user's PATH is without."""


def _search_path() -> str:
    own = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([own, *_SYSTEM_PROGRAMS])


@dataclass(frozen=True)
class Host:
    """Where to look. Without arguments it is the host that this process runs on."""

    root: Path = Path("/")
    """Holds sys, proc, dev and run."""
    search: str = field(default_factory=_search_path)
    """Directories of programs, as in PATH."""
    user: int = field(default_factory=os.geteuid)
    """The user for whom the host is examined; programs are run as this process's all the same."""

    def path(self, place: str | Path) -> Path:
        """A file or directory; `place` is relative to the root."""
        return self.root / place

    def text(self, place: str | Path) -> str | None:
        """A file's text without white space at its ends, or None."""
        try:
            with self.path(place).open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace").strip("\0 \t\r\n")
        except OSError:
            return None

    def number(self, place: str | Path) -> int | None:
        """A file's number, decimal or as 0x1af4, or None."""
        text = self.text(place)
        if text is None:
            return None
        try:
            number = int(text, 0)
        except ValueError:
            return None
        return number if abs(number) < 1 << 64 else None

    def names(self, place: str | Path) -> list[str]:
        """The names in a directory, numbers in them by their value; none if it is not there."""
        try:
            return sorted((entry.name for entry in os.scandir(self.path(place))), key=_natural)
        except OSError:
            return []

    def link(self, place: str | Path) -> str | None:
        """What a symbolic link names, or None."""
        try:
            return str(self.path(place).readlink())
        except OSError:
            return None

    def link_name(self, place: str | Path) -> str | None:
        """The last part of what a symbolic link names: a device's driver, for one."""
        link = self.link(place)
        return None if link is None else Path(link).name

    def exists(self, place: str | Path) -> bool:
        """Whether there is such a file or directory, as far as this user can see."""
        try:
            return self.path(place).exists()
        except OSError:
            return False

    def may(self, place: str | Path, mode: int) -> bool:
        """Whether this user may use a file so (os.R_OK, os.W_OK)."""
        return os.access(self.path(place), mode)

    def program(self, *names: str) -> Path | None:
        """The first of these programs that there is."""
        for name in names:
            found = shutil.which(name, path=self.search)
            if found is not None:
                return Path(found)
        return None

    def ask(self, program: str | Path, *arguments: str) -> str | None:
        """What a program prints; None where it is not there, fails, or takes too long."""
        answer = self.try_program(program, *arguments)
        return answer.output if answer.worked else None

    def try_program(self, program: str | Path, *arguments: str) -> "Answer":
        """Run a program to its end, for some seconds at most."""
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
        """The kernel's command line: an option's name to its value, empty where it has none."""
        options = {}
        for word in (self.text("proc/cmdline") or "").split():
            if word == "--":  # what follows is for the first process
                break
            name, _, value = word.partition("=")
            options[name] = value
        return options

    @cached_property
    def is_virtual(self) -> bool:
        """Whether this is a virtual machine, as far as it is told."""
        flags = re.search(r"^flags\s*:(.*)$", self.text("proc/cpuinfo") or "", re.M)
        said = flags is not None and "hypervisor" in flags[1].split()
        return said or self.exists("proc/device-tree/hypervisor")

    @cached_property
    def mounts(self) -> dict[str, str]:
        """File systems: where each is mounted, to its type. What was mounted last counts."""
        found = {}
        for line in (self.text("proc/self/mounts") or "").splitlines():
            fields = line.split()
            if len(fields) >= 3:
                found[fields[1]] = fields[2]
        return found

    @cached_property
    def capabilities(self) -> int:
        """The effective capabilities of this process, a bit each (see capabilities(7))."""
        found = re.search(r"^CapEff:\s*([0-9a-f]+)", self.text("proc/self/status") or "", re.M)
        return int(found[1], 16) if found else 0


@dataclass(frozen=True)
class Answer:
    """What came of running a program."""

    worked: bool
    output: str
    complaint: str
    """The last line that it complained with, if it failed."""


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in re.split(r"([0-9]+)", name)
    ]
