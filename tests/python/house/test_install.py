"""`meson install`: what is where, and that it works there."""

import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[3] / "build" / "release"
CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prefix below DESTDIR, after `meson install` of the checkout's build."""
    staged = tmp_path_factory.mktemp("installed")
    subprocess.run(
        ["meson", "install", "--no-rebuild", "--quiet", "-C", str(BUILD), "--destdir", str(staged)],
        check=True,
        capture_output=True,
    )
    return staged / "usr" / "local"


@pytest.fixture(scope="module")
def native(installed: Path) -> Path:
    (found,) = installed.rglob("libvicinal-heap.so")
    return found.parent


def test_the_provider_is_where_libfabric_looks(native: Path) -> None:
    provider = native.parent / "libfabric" / "libvicinal-fi.so"
    assert provider.is_file()
    assert (native / "libvicinal-fi.so").resolve() == provider
    listed = subprocess.run(
        ["fi_info", "--list"],
        env=CLEAN | {"FI_PROVIDER_PATH": str(provider.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "vicinal:" in listed.stdout
    assert listed.stderr == ""


def test_without_a_region_the_provider_is_silent_and_offers_nothing(native: Path) -> None:
    environment = CLEAN | {"FI_PROVIDER_PATH": str(native.parent / "libfabric")}
    shown = subprocess.run(["fi_info"], env=environment, capture_output=True, text=True, check=True)
    assert "provider: vicinal" not in shown.stdout
    assert "provider: tcp" in shown.stdout
    assert shown.stderr == ""


def test_the_command_needs_no_variable(native: Path) -> None:
    python = native / "python" / "bin" / "python3"
    # Python packages of the command may be missing here; these two calls need none.
    shown = subprocess.run(
        [str(python), "-P", "-m", "vicinal", "--version"],
        env=CLEAN,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("vicinal ")
    where = "import vicinal; print(vicinal.__file__)"
    said = subprocess.run(
        [str(python), "-P", "-c", where], env=CLEAN, capture_output=True, text=True, check=True
    )
    assert Path(said.stdout.strip()).is_relative_to(native / "python")


def test_no_installed_file_names_the_staging_directory(installed: Path) -> None:
    staged = str(installed.parents[1]).encode()
    found = [
        path
        for path in installed.rglob("*")
        if path.is_file() and not path.is_symlink() and staged in path.read_bytes()
    ]
    assert found == []


def test_files_of_udev_systemd_and_developers_are_there(installed: Path, native: Path) -> None:
    wanted = (
        "lib/udev/rules.d/70-vicinal.rules",
        "lib/systemd/system/vicinal-doorbell@.service",
        "lib/sysusers.d/vicinal.conf",
        "lib/tmpfiles.d/vicinal.conf",
        "include/vicinal/vicinal_ext.h",
        "share/man/man7/fi_vicinal.7",
    )
    assert [name for name in wanted if not (installed / name).is_file()] == []
    unit = (installed / wanted[1]).read_text()
    assert f"ExecStart=/usr/local/{native.relative_to(installed)}/vicinal-doorbell-agent" in unit


def test_a_program_finds_the_header_by_pkg_config(installed: Path, tmp_path: Path) -> None:
    (metadata,) = installed.rglob("vicinal.pc")
    environment = CLEAN | {
        "PKG_CONFIG_PATH": str(metadata.parent),
        "PKG_CONFIG_SYSROOT_DIR": str(installed.parents[1]),
    }
    flags = subprocess.run(
        ["pkg-config", "--cflags", "vicinal"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source = tmp_path / "program.c"
    source.write_text(
        "#include <vicinal_ext.h>\nint main(void) { return VICINAL_HEAP_OPS[0] != 'v'; }\n"
    )
    program = tmp_path / "program"
    subprocess.run(["gcc", *flags, "-o", str(program), str(source)], check=True)
    subprocess.run([str(program)], check=True)
