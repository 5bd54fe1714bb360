"""A provider that this system cannot load, and a libfabric that loads none: one line says why."""

import shutil
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line

from vicinal.base.errors import VicinalError
from vicinal.mpi import libfabric
from vicinal.mpi.environment import PROVIDER_FILE, mpi_prefix, provider_directory
from vicinal.mpi.libfabric import check_loads_provider, libfabric_of
from vicinal.mpi.libraries import Mpi, installation, mpi_variable

REMEDY = "build Vicinal on this system, or install a wheel or package that is for this system"


def compile_library(target: Path, source: str, *more: str) -> None:
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *more, "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)


def newer_c_library(directory: Path) -> None:
    """The provider needs a version of the C library that does not exist yet."""
    (directory / "versions").write_text("GLIBC_2.99 { global: later; };\n")
    versions = f"-Wl,-soname,libc.so.6,--version-script={directory / 'versions'}"
    stub = directory / "stub.so"
    compile_library(stub, "int later(void) { return 0; }", versions)
    source = "int later(void); int fi_prov_ini(void) { return later(); }"
    compile_library(directory / PROVIDER_FILE, source, "-nostdlib", str(stub))


def other_processor(directory: Path) -> None:
    content = bytearray((provider_directory() / PROVIDER_FILE).read_bytes())
    content[18:20] = (183).to_bytes(2, "little")
    (directory / PROVIDER_FILE).write_bytes(content)


def half_the_bits(directory: Path) -> None:
    content = bytearray((provider_directory() / PROVIDER_FILE).read_bytes())
    content[4] = 1
    content[18:20] = (3).to_bytes(2, "little")
    (directory / PROVIDER_FILE).write_bytes(content)


def musl(directory: Path) -> None:
    """A library of musl needs libc.so, which is a text beside the headers of glibc."""
    stub = directory / "libc.so"
    compile_library(stub, "int own(void) { return 0; }", "-nostdlib", "-Wl,-soname,libc.so")
    source = "int own(void); int fi_prov_ini(void) { return own(); }"
    needs = ["-nostdlib", str(stub), "-Wl,-rpath,$ORIGIN"]
    compile_library(directory / PROVIDER_FILE, source, *needs)
    stub.write_text("/* GNU ld script */\n" + 100 * " ")


def empty(directory: Path) -> None:
    (directory / PROVIDER_FILE).touch()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (newer_c_library, "version `GLIBC_2.99' not found: "),
        (other_processor, "it is for aarch64, and "),
        (half_the_bits, "it is for 32-bit i386, and "),
        (musl, "it was linked with another C library, such as musl ("),
        (empty, "it is no shared library: "),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_provider_of_another_system(
    vicinal: Vicinal, tmp_path: Path, make: "object", says: str
) -> None:
    assert callable(make)
    make(tmp_path)
    own = {"VICINAL_PROVIDER_DIR": str(tmp_path)}
    for arguments in (["env", "--mpi", "mpich"], ["run", "--mpi", "mpich", "-n", 2, "true"]):
        line = error_line(vicinal(*arguments, **own))
        assert f"the provider {tmp_path / PROVIDER_FILE} cannot be loaded here: " in line
        assert says in line
        assert line.endswith(REMEDY)
    doctor = vicinal("doctor", "mpi", **own)
    assert doctor.returncode == 1
    assert f"{says.removesuffix(': ')}" in doctor.stdout


def test_a_libfabric_without_files_of_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was built without dlopen: the provider would load, and is not listed."""
    mpi = installation(Mpi.MPICH)
    real = libfabric_of(mpi)
    assert real is not None
    source = (
        "unsigned fi_version(void) { return 2 << 16 | 1; } int fi_getinfo(void) { return -61; }"
    )
    compile_library(tmp_path / "stub.so", source, "-Wl,--no-as-needed", str(real))
    monkeypatch.setattr(libfabric, "libfabric_of", lambda _: tmp_path / "stub.so")
    with pytest.raises(VicinalError, match="loads no providers from files: it was built without"):
        check_loads_provider(mpi)


def test_two_installations_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vicinal: Vicinal
) -> None:
    """A job uses the files of one, and `doctor` tells of the other that libfabric loads too."""
    prefix = tmp_path / "prefix"
    shutil.copytree(mpi_prefix("mpich"), prefix, symlinks=True)
    (other,) = (path for path in prefix.rglob("libfabric") if path.is_dir())
    shutil.copy(provider_directory() / PROVIDER_FILE, other)
    with (other / PROVIDER_FILE).open("ab") as file:
        file.write(b"another build")
    monkeypatch.setenv(mpi_variable(Mpi.MPICH), str(prefix))
    lines = [line for line in vicinal("doctor", "mpi").stdout.splitlines() if "WARN" in line]
    assert len(lines) == 1
    assert f"loads a provider of another Vicinal, too: {other / PROVIDER_FILE}" in lines[0]
    assert "remove one of the two installations" in lines[0]
    program = CHECKOUT / "build/programs/mpich/verify"
    done = vicinal("run", "--mpi", "mpich", "-n", 2, program, "--max-size", 300)
    assert done.returncode == 0, done.stderr
