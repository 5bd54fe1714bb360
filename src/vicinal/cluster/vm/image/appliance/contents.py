"""What is put into the appliance beside Debian's packages: files of ours, Vicinal, its libraries.

All of it is one tar archive that is laid over the system before most packages are installed.
"""

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath

import vicinal
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.image.appliance.packages import PACKAGES
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
