"""Where Vicinal's own native files are: the provider, libraries to preload, programs for guests.

All lie in one directory, of which libvicinal-fi.so is the file that is always there. Vicinal comes
in three ways, each with a directory of its own:

    a checkout           build/release/provider, which `make` fills
    a Python wheel       _native in the package
    `meson install`      the directory that the file native_directory in the package names; without
                         the file, <prefix>/lib/vicinal or <prefix>/lib/libfabric

A checkout or a wheel never uses the files of another installation, because versions may differ.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import vicinal
from vicinal.base.checkout import checkout
from vicinal.base.directories import cache_directory
from vicinal.base.errors import VicinalError

PROVIDER_FILE = "libvicinal-fi.so"

_IN_PACKAGE = "_native"
_POINTER = "native_directory"
_LIBRARY_DIRECTORIES = ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")


def native_directory() -> Path | None:
    """Return the directory of the native files; None if an installed package has none.

    In a checkout the directory may be missing or incomplete until `make` has run.
    """
    tree = checkout()
    if tree is not None:
        return tree / "build" / "release" / "provider"
    return next((each for each in _directories() if (each / PROVIDER_FILE).is_file()), None)


def provider_directory() -> Path:
    """Return the directory of the provider and of the files beside it.

    The directory is $VICINAL_PROVIDER_DIR, or else the directory of this installation's native
    files. Raises VicinalError if the provider is not there.
    """
    chosen = os.environ.get("VICINAL_PROVIDER_DIR")
    if chosen:
        directory = Path(chosen).resolve()
        remedy = f"set VICINAL_PROVIDER_DIR to the directory that holds {PROVIDER_FILE}"
    else:
        native = native_directory()
        if native is None:
            raise VicinalError(
                f"this installation has no {PROVIDER_FILE}",
                f"{native_remedy()}, or set VICINAL_PROVIDER_DIR to the directory that holds "
                f"{PROVIDER_FILE}",
            )
        directory = native
        remedy = f"{native_remedy()}, or set VICINAL_PROVIDER_DIR"
    if not (directory / PROVIDER_FILE).is_file():
        raise VicinalError(f"there is no {PROVIDER_FILE} in {directory}", remedy)
    return directory


def native_remedy() -> str:
    """What a user can do if a native file is missing."""
    tree = checkout()
    if tree is not None:
        return f"run `make` in {tree}"
    return f"install a wheel or package of Vicinal {vicinal.__version__} that is for this system"


def program_sources() -> Path | None:
    """Return the directory with the C sources of the measuring programs; None if not installed."""
    return _data("programs")


def compiled_programs() -> Path:
    """Return the directory for compiled measuring programs, which may be missing: build/programs
    of a checkout, or one in the user's cache."""
    tree = checkout()
    return cache_directory() / "programs" if tree is None else tree / "build" / "programs"


def parsed_studies() -> Path | None:
    """Return the file with the parsed values of the shipped studies; None if not installed.

    In a checkout the file may be missing until `make` has run.
    """
    tree = checkout()
    return _data("studies.json") if tree is None else tree / "build" / "studies.json"


def own_trees() -> list[Path]:
    """Return the directories that hold Vicinal, its Python environment and its native files,
    without directories inside others of these."""
    tree = checkout()
    if tree is not None:
        return [tree]
    native = native_directory()
    trees = [Path(sys.prefix), _package().parent, *([] if native is None else [native])]
    found = list(dict.fromkeys(each.resolve() for each in trees))
    return [each for each in found if not any(each.is_relative_to(o) for o in found if o != each)]


def _data(name: str) -> Path | None:
    tree = checkout()
    places = _directories() if tree is None else [tree]
    return next((path for each in places if (path := each / name).exists()), None)


def _directories() -> Iterator[Path]:
    """The directories in which an installed package looks for native files."""
    package = _package()
    yield package / _IN_PACKAGE
    pointer = package / _POINTER
    if pointer.is_file():
        yield Path(os.fsdecode(pointer.read_bytes()).strip())
        return
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix, "/usr/local", "/usr")):
        for libraries in _LIBRARY_DIRECTORIES:
            yield Path(prefix, libraries, "vicinal")
            yield Path(prefix, libraries, "libfabric")


def _package() -> Path:
    return Path(vicinal.__file__).resolve().parent
