"""Building the appliance: everything together, kept by content.

    build_appliance(Path("vicinal.qcow2"), say=print)

What it is made of has a key; as long as that is the same, the appliance is not made again. The
key covers the files of ours, the names of Debian's packages and where they come from, and not
their versions: `anew` makes it of the packages of today.

What is put into the appliance beside Debian's packages is one tar archive: files of ours, Vicinal
and its libraries. The archive is laid over the system before most packages are installed.
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
from vicinal.cluster.vm.image.appliance.bootstrap import SYSTEM_SIZE, bootstrap, build_place
from vicinal.cluster.vm.image.appliance.disk_layout import Identity, make_disk, run_tool
from vicinal.cluster.vm.image.appliance.packages import FILES_KEPT, FILES_LEFT_OUT, PACKAGES
from vicinal.cluster.vm.image.appliance.tools import check_space, check_tools
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.packages import PackageStore
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory
from vicinal.mpi.preloading import HEAP_FILE, PAIRS_FILE

_HERE = Path(__file__).parent
_RULES = _HERE.parent / "70-vicinal.rules"

_LIBRARIES = ("jsonschema", "psutil", "rich", "ruamel.yaml", "typer")
"""What the command needs of Python's packages beside numpy, which is Debian's there. The libraries
of studies are left out: they are large, and Debian has them for who wants them."""

_OURS = "usr/lib/vicinal"
_SITE = f"{_OURS}/site-packages"
_NOT_PYTHON = ("__pycache__", ".pyc")
_IMAGE_SIZE = 500 << 20
"""Bytes of the finished image, at most."""
_KEPT_SIZE = 2000 << 20
"""Bytes beside the system while it is made: the disk, the image of it, packages twice."""
_CONVERT_SECONDS = 600


@dataclass(frozen=True)
class Appliance:
    """A finished appliance."""

    file: Path
    key: str
    """What it is made of, as a number."""
    made: bool
    """Whether it was made just now, and not kept from before."""


def appliances_directory() -> Path:
    """Where appliances and the packages that they are made of are kept."""
    return guests_directory() / "appliance"


def build_appliance(
    target: Path,
    say: Callable[[str], None] = lambda _: None,
    *,
    anew: bool = False,
    replace: bool = False,
) -> Appliance:
    """Write the appliance into `target`, a qcow2 file; `say` is told what is being done.

    Without `replace` another file of that name is an error. Raises VicinalError where something
    is missing; then, as after an interruption, nothing is left, and what was there before still is.
    """
    if not may_write(target.parent) or not target.parent.is_dir():
        raise VicinalError(
            f"{target} cannot be written by this user", "name a file in a directory of yours"
        )
    if target.is_dir():
        raise VicinalError(f"{target} is a directory", "name a file")
    directory = appliances_directory()
    check_writable(directory, "let XDG_CACHE_HOME name a directory that you may write to")
    with locked(directory):
        release, sources = _debian(directory)
        files = contents()
        key = appliance_key(files, release, sources)
        kept = directory / f"appliance-{key}.qcow2"
        made = anew or not kept.is_file()
        if target.exists() and not replace and (made or not filecmp.cmp(kept, target, False)):
            raise VicinalError(
                f"{target} is there already, and is something else",
                "name another file, or replace it with --replace",
            )
        if made:
            check_tools()
            _make(kept, files, release, sources, Identity(key), say)
        _hand_out(kept, target)
    return Appliance(target, key, made)


def appliance_key(files: Mapping[str, bytes], release: str, sources: Sequence[str]) -> str:
    """What tells appliances apart that are made of different things."""
    digest = hashlib.sha256()
    # The files hold this package, and so how the appliance is made.
    named = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    parts = (release, list(sources), PACKAGES, FILES_LEFT_OUT, FILES_KEPT, sorted(named.items()))
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]


def _debian(directory: Path) -> tuple[str, list[str]]:
    """This host's Debian release, and where its packages come from."""
    with _scratch(directory) as scratch:
        release, sources = PackageStore(scratch / "store").release_sources()
    secret = next((line for line in sources if "@" in line), None)
    if secret is not None:
        raise VicinalError(
            "the address of this host's Debian mirror holds a password, which everybody would "
            "find in the appliance",
            "let the mirror admit this host without one",
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
    for left in directory.glob("part-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    check_space([(build_place(), SYSTEM_SIZE), (directory, _KEPT_SIZE)])
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
        image.chmod(0o444)  # it is copied, and never run from here
        image.replace(kept)
    for old in directory.glob("appliance-*.qcow2"):
        if old != kept:
            old.unlink()


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A directory for files of this time, closed to other users."""
    with tempfile.TemporaryDirectory(prefix="part-", dir=directory) as scratch:
        yield Path(scratch)


def _hand_out(kept: Path, target: Path) -> None:
    """Copy the appliance to where it is wanted, so that who runs it there changes that copy."""
    if target.exists() and filecmp.cmp(kept, target, shallow=False):
        return
    check_space([(target.parent, _IMAGE_SIZE)])
    with replaced(target) as part:
        shutil.copyfile(kept, part)


def contents() -> dict[str, bytes]:
    """Every file by its name from the appliance's root on; programs begin with `#!`.

    Raises VicinalError where the provider or a Python library is missing here.
    """
    files = {
        str(path.relative_to(_HERE / "root")): path.read_bytes()
        for path in sorted((_HERE / "root").rglob("*"))
        if path.is_file()
    }
    files[f"etc/udev/rules.d/{_RULES.name}"] = _RULES.read_bytes()
    files[f"{_OURS}/packages"] = "".join(f"{name}\n" for name in PACKAGES).encode()
    for name in (PROVIDER_FILE, PAIRS_FILE, HEAP_FILE):
        files[f"{_OURS}/provider/{name}"] = (provider_directory() / name).read_bytes()
    package = Path(vicinal.__file__).parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and not str(path).endswith(_NOT_PYTHON[1]):
            files[f"{_SITE}/vicinal/{path.relative_to(package)}"] = path.read_bytes()
    for name, path in _library_files():
        files[f"{_SITE}/{name}"] = path.read_bytes()
    return files


def write_archive(target: Path, files: Mapping[str, bytes]) -> None:
    """A tar archive of the files, all of them root's and without a date."""
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
    """Top-level modules of the libraries that the appliance has beside Debian's numpy."""
    return {
        file.parts[0].removesuffix(".py")
        for distribution in _with_dependencies(_LIBRARIES)
        for file in distribution.files or []
        if file.suffix in (".py", ".so") and file.parts[0] != ".."
    }


def _library_files() -> Iterator[tuple[str, Path]]:
    """Name below site-packages, and place here, of each file of the libraries."""
    for distribution in _with_dependencies(_LIBRARIES):
        for file in distribution.files or []:
            place = Path(str(file.locate()))
            # Programs of a package are outside: "../../../bin/name".
            if ".." not in file.parts and _NOT_PYTHON[0] not in file.parts and place.is_file():
                yield str(file), place


def _with_dependencies(names: tuple[str, ...]) -> list[metadata.Distribution]:
    """Those packages, and what they depend on, as they are installed here."""
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
                continue  # a dependency of other systems, or of other versions of Python
            raise VicinalError(
                f"the Python library {name} is not installed as a package here",
                "install Vicinal with its dependencies, by pip or by `make`",
            ) from error
        for requirement in distribution.requires or []:
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return list(found.values())
