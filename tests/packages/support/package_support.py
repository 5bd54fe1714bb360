"""What tests of packages share: commands, a user's program, and systems to install packages in."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

CHECKOUT = Path(__file__).parents[3]
GUARD_SECONDS = 1200

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int rank, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("sum %d\n", sum);
	return MPI_Finalize();
}
"""

# What a user of Debian's Open MPI has, without Python and without Vicinal.
_PACKAGES = (
    "bubblewrap", "ca-certificates", "gcc", "iproute2", "libc6-dev", "libfabric-bin",
    "libopenmpi-dev", "man-db", "openmpi-bin", "openssh-client", "procps",
)  # fmt: skip

# What apt, dpkg, rpm and a running system write, and what tests bring.
_NOT_LISTED = (
    "/dev", "/mnt", "/packages", "/proc", "/root", "/run", "/sys", "/tmp", "/var/cache",
    "/var/lib/apt", "/var/lib/dpkg", "/var/lib/rpm", "/var/log",
)  # fmt: skip


def call(command: list[object], **options: object) -> str:
    """The output of a command. A failure, such as an index that pip does not reach, is shown."""
    done = subprocess.run(
        [str(each) for each in command],
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": GUARD_SECONDS} | options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return str(done.stdout)


def clone_for_release(tree: Path) -> Path:
    """A clone with uncommitted changes, which `make` prepared as far as a release needs it."""
    call(["git", "clone", "--quiet", CHECKOUT, tree])
    changes = call(["git", "diff", "HEAD", "--binary"], cwd=CHECKOUT)
    call(["git", "apply", "--allow-empty", "--index"], cwd=tree, input=changes)
    for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.org")):
        call(["git", "config", name, value], cwd=tree)
    call(["git", "commit", "--quiet", "--all", "--allow-empty", "-m", "Changes"], cwd=tree)
    (tree / "build").mkdir()
    (tree / "build/venv").symlink_to(CHECKOUT / "build/venv")
    return tree


@cache
def built_debs() -> Path:
    """The directory with Debian's packages; `scripts/packages` fails if lintian finds anything."""
    call([CHECKOUT / "scripts/packages", "deb"])
    return CHECKOUT / "build/packages/deb"


@dataclass(frozen=True)
class System:
    """A Debian system in a directory."""

    root: Path

    def run(self, *command: object) -> str:
        """The output of a command that has the directory as its root."""
        return call([CHECKOUT / "scripts/in_root", self.root, *command])

    def shell(self, script: str) -> str:
        return self.run("bash", "-euo", "pipefail", "-c", script)

    def apt_get(self, *words: object) -> str:
        apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y")
        return self.run(*apt, "--no-install-recommends", *words)

    def files(self) -> set[str]:
        """All files, without files that package managers and a running system write."""
        left_out = " -o ".join(f"-path {each}" for each in _NOT_LISTED)
        return set(self.shell(f"find / -xdev \\( {left_out} \\) -prune -o -print").splitlines())

    def compile_program(self) -> str:
        """Compile PROGRAM by Debian's Open MPI, and return its path."""
        (self.root / "root/program.c").write_text(PROGRAM)
        self.run("mpicc", "-o", "/root/program", "/root/program.c")
        return "/root/program"


@contextmanager
def fresh_system() -> Iterator[System]:
    """A system with Debian's packages only, of this machine's release, which is removed at the end.

    Needs root. It is a copy: the first call installs the original, and later calls use it again.
    """
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    systems = CHECKOUT / "build/distro"
    original = systems / f"{release}-packages"
    call([CHECKOUT / "scripts/debian_root", original, release, *_PACKAGES])
    copy = Path(mkdtemp(prefix=f"{original.name}-", dir=systems))
    try:
        call(["cp", "--archive", "--reflink=auto", f"{original}/.", copy])
        copy.chmod(0o755)
        yield System(copy)
    finally:
        shutil.rmtree(copy)


def used_region(paths: str) -> bool:
    """Whether `vicinal run --paths` says that the messages of two nodes went through the region."""
    rows = [line.split() for line in paths.splitlines() if "node0" in line and "node1" in line]
    return len(rows) == 2 and all("region" in row for row in rows)
