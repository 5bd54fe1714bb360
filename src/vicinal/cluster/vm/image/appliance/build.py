"""Building the appliance: the whole procedure, and keeping the result by a key of its contents.

    build_appliance(Path("vicinal.qcow2"), say=print)

The key identifies what the appliance is built from. While it stays the same, the appliance is not
built again. The key covers Vicinal's files, and the names and sources of Debian's packages, but not
their versions: `anew` builds it from current packages.

Everything except Debian's packages is in one tar archive: Vicinal's files, Vicinal itself and its
libraries. The archive is unpacked over the system before most packages are installed.
"""

import filecmp
import hashlib
import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

import vicinal
from vicinal.base.directories import check_writable, may_write
from vicinal.base.errors import VicinalError
from vicinal.base.files import locked, replaced
from vicinal.cluster.vm.image.appliance.boot_loader import install_bios, install_uefi
from vicinal.cluster.vm.image.appliance.bootstrap import SYSTEM_SIZE, bootstrap, build_directory
from vicinal.cluster.vm.image.appliance.disk_layout import Identity, make_disk, run_tool
from vicinal.cluster.vm.image.appliance.packages import FILES_KEPT, FILES_LEFT_OUT, PACKAGES
from vicinal.cluster.vm.image.appliance.tools import check_space, check_tools
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.packages import PackageStore
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory
from vicinal.mpi.preloading import HEAP_FILE, MPI_FILE, PAIRS_FILE

_HERE = Path(__file__).parent
_RULES = _HERE.parent / "70-vicinal.rules"

_LIBRARIES = ("jsonschema", "psutil", "rich", "ruamel.yaml", "typer")
"""Python packages that the command needs besides numpy, which Debian provides. The libraries of
studies are omitted: they are large, and Debian provides them for users who need them.
"""

_OURS = "usr/lib/vicinal"
_SITE = f"{_OURS}/site-packages"
_NOT_PYTHON = ("__pycache__", ".pyc")
_IMAGE_SIZE = 500 << 20
"""Maximum size of the finished image in bytes."""
_KEPT_SIZE = 2000 << 20
"""Bytes besides the system during the build: the disk, its image, and packages twice."""
_CONVERT_SECONDS = 600


@dataclass(frozen=True)
class Appliance:
    """A finished appliance."""

    file: Path
    key: str
    """Key of its contents; see appliance_key()."""
    made: bool
    """Whether it was built by this call, instead of kept from an earlier one."""


def appliances_directory() -> Path:
    """The directory for appliances and their packages."""
    return guests_directory() / "appliance"


def build_appliance(
    target: Path,
    say: Callable[[str], None] = lambda _: None,
    *,
    anew: bool = False,
    replace: bool = False,
) -> Appliance:
    """Write the appliance to `target`, a qcow2 file; `say` receives each step.

    Without `replace`, an existing file with other contents is an error. Raises VicinalError if
    something is missing. After an error or interruption, `target` is as before, and nothing is
    left.
    """
    if not may_write(target.parent) or not target.parent.is_dir():
        raise VicinalError(
            f"{target} cannot be written by this user", "name a file in a directory of this user"
        )
    if target.is_dir():
        raise VicinalError(f"{target} is a directory", "name a file")
    directory = appliances_directory()
    check_writable(directory, "set XDG_CACHE_HOME to a directory that you may write to")
    with locked(directory):
        release, sources = _debian(directory)
        files = contents()
        key = appliance_key(files, release, sources)
        kept = directory / f"appliance-{key}.qcow2"
        made = anew or not kept.is_file()
        if target.exists() and not replace and (made or not filecmp.cmp(kept, target, False)):
            raise VicinalError(
                f"{target} exists already, with other contents",
                "name another file, or replace it with --replace",
            )
        if made:
            check_tools()
            _make(kept, files, release, sources, Identity(key), say)
        _hand_out(kept, target)
    return Appliance(target, key, made)


def appliance_key(files: Mapping[str, bytes], release: str, sources: Sequence[str]) -> str:
    """A key of what an appliance is built from."""
    digest = hashlib.sha256()
    # The files include this package, and so the procedure of the build.
    named = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    parts = (release, list(sources), PACKAGES, FILES_LEFT_OUT, FILES_KEPT, sorted(named.items()))
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]


def _debian(directory: Path) -> tuple[str, list[str]]:
    """This host's Debian release, and the lines of its sources.list."""
    with _scratch(directory) as scratch:
        release, sources = PackageStore(scratch / "store").release_sources()
    secret = next((line for line in sources if "@" in line), None)
    if secret is not None:
        raise VicinalError(
            "the address of this host's Debian mirror contains a password, which all users of the "
            "appliance could read",
            "let the mirror admit this host without a password",
        )
    return release, sources


def _make(
    kept: Path,
    files: Mapping[str, bytes],
    release: str,
    sources: Sequence[str],
    identity: Identity,
    say: Callable[[str], None],
) -> None:
    directory = kept.parent
    for left in directory.glob("part-*"):  # left by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    check_space([(build_directory(), SYSTEM_SIZE), (directory, _KEPT_SIZE)])
    packages = directory / "packages"
    with _scratch(directory) as scratch:
        disk, archive, image = scratch / "disk", scratch / "files.tar", scratch / "image"
        fetched = scratch / "packages"
        write_archive(archive, files)
        make_disk(disk, identity)
        install_bios(disk, identity)
        install_uefi(disk, identity)
        packages.mkdir(exist_ok=True)
        log_file = directory / "last-build.log"
        try:
            bootstrap(disk, archive, packages, fetched, release, sources, identity, log_file, say)
        finally:
            if fetched.is_dir() and any(fetched.iterdir()):
                shutil.rmtree(packages)
                fetched.rename(packages)
        say("compressing the image")
        command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-m", "8", "-W"]
        command += ["-o", "compression_type=zstd", str(disk), str(image)]
        run_tool("the image could not be written", command, seconds=_CONVERT_SECONDS)
        image.chmod(0o444)  # it is copied, and never booted itself
        image.replace(kept)
    for old in directory.glob("appliance-*.qcow2"):
        if old != kept:
            old.unlink()


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A temporary directory, closed to other users."""
    with tempfile.TemporaryDirectory(prefix="part-", dir=directory) as scratch:
        yield Path(scratch)


def _hand_out(kept: Path, target: Path) -> None:
    """Copy the appliance to the target, because a VM that runs it changes its copy."""
    if target.exists() and filecmp.cmp(kept, target, shallow=False):
        return
    check_space([(target.parent, _IMAGE_SIZE)])
    with replaced(target) as part:
        shutil.copyfile(kept, part)


def contents() -> dict[str, bytes]:
    """The contents of all files by their paths relative to the appliance's root.

    Programs begin with `#!`. Raises VicinalError if this host lacks the provider or a library.
    """
    files = {
        str(path.relative_to(_HERE / "root")): path.read_bytes()
        for path in sorted((_HERE / "root").rglob("*"))
        if path.is_file()
    }
    files[f"etc/udev/rules.d/{_RULES.name}"] = _RULES.read_bytes()
    files[f"{_OURS}/packages"] = "".join(f"{name}\n" for name in PACKAGES).encode()
    for name in (PROVIDER_FILE, PAIRS_FILE, MPI_FILE, HEAP_FILE):
        files[f"{_OURS}/provider/{name}"] = (provider_directory() / name).read_bytes()
    package = Path(vicinal.__file__).parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and not str(path).endswith(_NOT_PYTHON[1]):
            files[f"{_SITE}/vicinal/{path.relative_to(package)}"] = path.read_bytes()
    for name, path in _library_files():
        files[f"{_SITE}/{name}"] = path.read_bytes()
    return files


def write_archive(target: Path, files: Mapping[str, bytes]) -> None:
    """Write a tar archive of the files, owned by root and without dates."""
    with tarfile.open(target, "w") as tar:
        made: set[str] = set()
        for name, content in files.items():
            for parent in reversed(PurePosixPath(name).parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    tar.addfile(_entry(str(parent), tarfile.DIRTYPE, 0o755))
            entry = _entry(name, tarfile.REGTYPE, 0o755 if content.startswith(b"#!") else 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def library_modules() -> set[str]:
    """Top-level modules of the libraries that the appliance has besides Debian's numpy."""
    return {
        file.parts[0].removesuffix(".py")
        for distribution in _with_dependencies(_LIBRARIES)
        for file in distribution.files or []
        if file.suffix in (".py", ".so") and file.parts[0] != ".."
    }


def _library_files() -> Iterator[tuple[str, Path]]:
    """The path below site-packages, and the path on this host, of each file of the libraries."""
    for distribution in _with_dependencies(_LIBRARIES):
        for file in distribution.files or []:
            path = Path(str(file.locate()))
            # Programs of a package are outside of site-packages: "../../../bin/name".
            if ".." not in file.parts and _NOT_PYTHON[0] not in file.parts and path.is_file():
                yield str(file), path


def _with_dependencies(names: tuple[str, ...]) -> list[metadata.Distribution]:
    """These packages and their dependencies, as they are installed on this host."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        try:
            found[name] = distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            if name not in names:
                continue  # a dependency on other systems, or with other versions of Python
            raise VicinalError(
                f"the Python library {name} is not installed as a package on this host",
                "install Vicinal with its dependencies, by pip or `make`",
            ) from error
        for requirement in distribution.requires or []:
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return list(found.values())
