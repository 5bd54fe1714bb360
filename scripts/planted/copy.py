"""A copy of what is committed, in which commands run as if it were the checkout.

Builds, the virtual environment and installed libraries hold the checkout's path. So a command runs
in a mount namespace of its own, where the copy lies over the checkout. It runs in a process
namespace, so that no process of a fault outlives it, and has a /dev/shm of its own, so that a
region that a fault left behind disturbs nothing after it.
"""

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

# What is installed, and which the copy shares with the checkout.
SHARED = ("build/venv", "build/mpi")
# Made by make, and taken over so that it need not be made again.
TAKEN = ("build/programs", "build/man")

_ENTER = """
set -e
for shared in {shared}; do mount --bind "$shared" "{copy}/$shared"; done
mount --rbind "{copy}" "$PWD"
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
cd "$PWD"
"$@" # not exec: the first process of a namespace has orphans to reap
exit 0
"""


class CopyError(Exception):
    """The copy cannot be made or used; the message says why and what to do."""


@dataclass(frozen=True)
class Done:
    """How a command in the copy ended."""

    status: int
    output: str


class Copy:
    """build/planted/tree of a checkout: a commit of it."""

    def __init__(self, checkout: Path, commit: str = "HEAD") -> None:
        self.checkout = checkout
        self.tree = checkout / "build" / "planted" / "tree"
        self._lock: TextIO | None = None
        self.commit = self._git(checkout, "rev-parse", f"{commit}^{{commit}}")

    def commits(self, most: int) -> list[str]:
        """The last commits, with the one that it is made of."""
        return self._git(self.checkout, "rev-list", f"--max-count={most}", self.commit).split()

    def refresh(self) -> None:
        """Make it what is committed. What was built in it stays."""
        missing = [name for name in SHARED if not (self.checkout / name).is_dir()]
        if missing:
            raise CopyError(f"{missing[0]} is missing: run make first")
        if os.geteuid() != 0:
            raise CopyError(
                "a mount namespace is needed, and this user may not make one: run it as root"
            )
        self.tree.parent.mkdir(parents=True, exist_ok=True)
        self._lock = (self.tree.parent / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CopyError(f"another check-planted uses {self.tree}: wait for its end") from None
        if not (self.tree / ".git").exists():
            shutil.rmtree(self.tree, ignore_errors=True)
            self._git(self.checkout, "clone", "--quiet", "--no-checkout", ".", str(self.tree))
        for name in TAKEN:
            if (self.checkout / name).is_dir() and not (self.tree / name).exists():
                shutil.copytree(self.checkout / name, self.tree / name, symlinks=True)
        for name in SHARED:
            (self.tree / name).mkdir(parents=True, exist_ok=True)
        (self.tree / ".git" / "index.lock").unlink(missing_ok=True)  # of a run that was killed
        self._git(self.tree, "fetch", "--quiet", str(self.checkout), self.commit)
        self.restore()
        self._git(self.tree, "clean", "--quiet", "--force", "-d")

    def restore(self) -> list[Path]:
        """Take out what was planted; the files that had it."""
        names = self._git(self.tree, "diff", "--name-only", "HEAD").splitlines()
        for name in names:
            self._forget_bytecode(self.tree / name)
        self._git(self.tree, "checkout", "--quiet", "--force", "--detach", self.commit)
        return [self.tree / name for name in names]

    def write(self, file: Path, text: str) -> None:
        """Change one of its files."""
        file.write_text(text)
        self._forget_bytecode(file)

    def run(self, command: list[str], seconds: float | None = None) -> Done:
        """Run a command at the copy's root; one that takes longer is killed."""
        enter = _ENTER.format(shared=" ".join(SHARED), copy=self.tree)
        # If this process is killed, setpriv's signal ends unshare, and that the namespace.
        namespaces = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        with subprocess.Popen(
            [*namespaces, "bash", "-c", enter, "enter", *command],
            cwd=self.checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                output += f"\nkilled after {seconds} s\n"
            except BaseException:
                process.kill()  # and with it, by --kill-child, all that it started
                raise
        return Done(process.returncode, output)

    @staticmethod
    def _forget_bytecode(file: Path) -> None:
        # Python compares a file's second and size with its byte code's: a fault may change neither.
        if file.suffix == ".py":
            shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    @staticmethod
    def _git(folder: Path, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise CopyError(f"git {arguments[0]} failed in {folder}: {done.stderr.strip()}")
        return done.stdout.strip()
