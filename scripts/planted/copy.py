"""A copy of a commit, in which commands run as if the copy were the checkout.

Builds, the virtual environment and installed libraries contain the checkout's path. So a command
runs in its own mount namespace, where the copy covers the checkout. The command also runs in a
process namespace, so that no process of a fault outlives it, and has its own /dev/shm, so that a
region that a fault left behind affects no later command.
"""

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

# Installed files, which the copy shares with the checkout.
SHARED = ("build/venv", "build/mpi")
# Files that make has made, taken over so that they need not be made again.
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
    """The copy cannot be made or used. The message says why and what to do."""


@dataclass(frozen=True)
class Done:
    """How a command in the copy ended."""

    status: int
    output: str


class Copy:
    """The folder build/planted/tree of a checkout: one of its commits."""

    def __init__(self, checkout: Path, commit: str = "HEAD") -> None:
        self.checkout = checkout
        self.tree = checkout / "build" / "planted" / "tree"
        self._lock: TextIO | None = None
        self.commit = self._git(checkout, "rev-parse", f"{commit}^{{commit}}")

    def commits(self, most: int) -> list[str]:
        """The last commits, ending with the commit of the copy."""
        return self._git(self.checkout, "rev-list", f"--max-count={most}", self.commit).split()

    def refresh(self) -> None:
        """Bring the copy to its commit. Builds in it stay."""
        missing = [name for name in SHARED if not (self.checkout / name).is_dir()]
        if missing:
            raise CopyError(f"{missing[0]} is missing: run make first")
        if os.geteuid() != 0:
            raise CopyError(
                "a mount namespace is needed, and this user may not make one: become root"
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
        (self.tree / ".git" / "index.lock").unlink(missing_ok=True)  # left by a run that was killed
        self._git(self.tree, "fetch", "--quiet", str(self.checkout), self.commit)
        self.restore()
        self._git(self.tree, "clean", "--quiet", "--force", "-d")

    def restore(self) -> list[Path]:
        """Remove the planted fault. Returns the files that contained it."""
        names = self._git(self.tree, "diff", "--name-only", "HEAD").splitlines()
        for name in names:
            self._forget_bytecode(self.tree / name)
        self._git(self.tree, "checkout", "--quiet", "--force", "--detach", self.commit)
        return [self.tree / name for name in names]

    def write(self, file: Path, text: str) -> None:
        """Change one of the copy's files."""
        file.write_text(text)
        self._forget_bytecode(file)

    def run(self, command: list[str], seconds: float | None = None) -> Done:
        """Run a command at the copy's root. After `seconds`, it is killed."""
        enter = _ENTER.format(shared=" ".join(SHARED), copy=self.tree)
        # If this process is killed, setpriv's signal ends unshare, which ends the namespace.
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
                process.kill()  # --kill-child then kills all its processes
                raise
        return Done(process.returncode, output)

    @staticmethod
    def _forget_bytecode(file: Path) -> None:
        # Python compares a file's second and size with those in its byte code. A fault may change
        # neither.
        if file.suffix == ".py":
            shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    @staticmethod
    def _git(folder: Path, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise CopyError(f"git {arguments[0]} failed in {folder}: {done.stderr.strip()}")
        return done.stdout.strip()
