"""Packages for RPM: installed, used, upgraded and erased in the root directory of a fresh system.

The system is a Debian, because its mirrors are there: rpm writes into it, and RPM's own
distributions were not tried. The tests run in the order of the file: each begins with the system
as the test before left it.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_support import CHECKOUT, GUARD_SECONDS, System, call, fresh_system, used_region

NAMES = {
    "libfabric-vicinal",
    "vicinal",
    "vicinal-devel",
    "vicinal-guest",
    "vicinal-slurm",
    "vicinal-study",
}
OF_THE_DISTRIBUTION = re.compile(
    r"(libfabric-devel|pkgconfig\(libfabric\)|/usr/bin/pkg-config|/bin/sh|/usr/bin/sh"
    r"|slurm [<>]=? \d+\.\d+|python\(abi\) = 3\.\d+|rtld\(GNU_HASH\)"
    r"|(ld-linux[\w-]*|libc|libfabric|libslurm\w*)\.so\.\d+.*)"
)
"""Requirements that the packages may have besides each other."""


@pytest.fixture(scope="module")
def built() -> list[Path]:
    """The packages; `scripts/packages` fails if rpmlint finds anything."""
    return build(1)


def build(revision: int) -> list[Path]:
    call([CHECKOUT / "scripts/packages", "rpm"], env=os.environ | {"REVISION": str(revision)})
    found = sorted((CHECKOUT / "build/packages/rpm").glob("*.rpm"))
    return [each for each in found if not each.name.endswith(".src.rpm")]


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A Debian with an MPI library and Python."""
    with fresh_system() as fresh:
        fresh.apt_get("update")
        fresh.apt_get("install", "python3")
        yield fresh


@pytest.fixture(scope="module")
def before(system: System) -> set[str]:
    """The files before Vicinal was installed."""
    return system.files()


def base(system: System) -> list[object]:
    """rpm for the system in its directory."""
    return ["rpm", "--root", system.root, "--dbpath", "/var/lib/rpm"]


def rpm(system: System, *words: object) -> str:
    """What rpm says, of the packages of the system."""
    return call([*base(system), *words])


def change(system: System, action: str, *names: object) -> None:
    """Install, upgrade or erase packages. Debian's own packages are none to rpm."""
    rpm(system, "--force-debian", "--nodeps", action, *names)


def test_each_part_is_a_package(built: list[Path]) -> None:
    assert {re.sub(r"-\d.*", "", each.name) for each in built} == NAMES
    assert list((CHECKOUT / "build/packages/rpm").glob("vicinal-*.src.rpm"))


def test_the_packages_need_only_each_other_and_the_distribution(
    system: System, built: list[Path]
) -> None:
    said = subprocess.run(
        [*map(str, base(system)), "--force-debian", "--test", "--install", *built],
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    ).stderr
    needed = set(re.findall(r"^\s+(.*) is needed by", said, re.MULTILINE))
    assert any(each.startswith("libfabric.so.1") for each in needed)
    assert any(each.startswith("slurm >=") for each in needed)
    assert {each for each in needed if not OF_THE_DISTRIBUTION.fullmatch(each)} == set()


def test_the_packages_install(system: System, before: set[str], built: list[Path]) -> None:
    assert not [each for each in before if "vicinal" in each]
    change(system, "--install", *built)
    assert set(rpm(system, "--query", "--all", "--qf", "%{name}\n").split()) == NAMES
    assert system.run("getent", "group", "mpi").startswith("mpi:")
    # The files are as they were packed.
    assert rpm(system, "--verify", "--nodeps", *NAMES) == ""


def test_the_provider_is_silent_in_a_directory_of_libfabric(system: System) -> None:
    listed = system.shell("FI_PROVIDER_PATH=/usr/lib64/libfabric fi_info --list 2>&1").splitlines()
    assert "vicinal:" in listed
    assert [line for line in listed if not re.match(r"[\w;-]+:$| +version: ", line)] == []


def test_the_command_and_its_manual_pages_are_there(system: System) -> None:
    assert system.run("vicinal", "--version").startswith("vicinal ")
    assert "quick" in system.run("vicinal", "study", "list")
    for page in ("vicinal", "fi_vicinal"):
        assert system.run("man", "--where", page).startswith("/usr/share/man/")
    assert "/usr/lib64/vicinal/libvicinal-fi.so" in system.run("vicinal", "doctor", "provider")


def test_a_program_of_the_systems_mpi_runs_over_the_region(system: System) -> None:
    program = system.compile_program()
    assert system.run("vicinal", "run", "-n", 2, program) == "sum 1\n"
    assert used_region(system.shell(f"vicinal run -n 2 --paths {program} 2>&1"))


def test_a_later_revision_takes_the_place_of_this_one(system: System) -> None:
    change(system, "--upgrade", *build(2))
    releases = rpm(system, "--query", "--all", "--qf", "%{name} %{release}\n").splitlines()
    assert {each.split()[0] for each in releases} == NAMES
    assert all(each.split()[1].startswith("2") for each in releases)
    assert system.run("vicinal", "run", "-n", 2, system.compile_program()) == "sum 1\n"


def test_the_provider_stays_without_the_command(system: System) -> None:
    command = {"vicinal", "vicinal-slurm", "vicinal-study"}
    change(system, "--erase", *command)
    left = {each for each in system.files() if "vicinal" in each}
    assert "/usr/lib64/libfabric/libvicinal-fi.so" in left
    assert [
        each for each in left if each.startswith(("/usr/bin/", "/usr/lib64/vicinal/python"))
    ] == []


def test_nothing_stays_after_the_packages_are_erased(system: System, before: set[str]) -> None:
    change(system, "--erase", *set(rpm(system, "--query", "--all", "--qf", "%{name}\n").split()))
    left = system.files() - before
    # Directories that a distribution's own packages have, such as /usr/share/licenses, are empty.
    assert {each for each in left if not (system.root / each[1:]).is_dir()} == set()
    assert {each for each in left if "vicinal" in each} == set()
