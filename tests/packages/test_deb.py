"""Debian's packages: installed, used, upgraded, removed and purged in a fresh Debian.

The tests run in the order of the file: each begins with the system as the test before left it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from package_support import System, built_debs, call, fresh_system, used_region

NAMES = (
    "libfabric-vicinal",
    "libvicinal-dev",
    "vicinal",
    "vicinal-guest",
    "vicinal-slurm",
    "vicinal-study",
)


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """A Debian with an MPI library, what the packages depend on, and the packages in /packages."""
    with fresh_system() as fresh:
        (fresh.root / "packages").mkdir()
        for package in packages(built_debs()):
            (fresh.root / "packages" / package.name).hardlink_to(package)
        fresh.apt_get("update")
        plan = fresh.apt_get("install", "--simulate", *own(fresh))
        needed = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
        fresh.apt_get("install", *(each for each in needed if each not in NAMES))
        yield fresh


def own(system: System, directory: str = "packages") -> list[str]:
    """The paths of the packages in the system."""
    return [f"/{directory}/{each.name}" for each in packages(system.root / directory)]


@pytest.fixture(scope="module")
def before(system: System) -> set[str]:
    """The files before Vicinal was installed."""
    return system.files()


@pytest.fixture(scope="module")
def listed_before(system: System) -> set[str]:
    """The providers that libfabric listed before Vicinal was installed."""
    return providers(system)


def providers(system: System) -> set[str]:
    """The names of the providers that libfabric lists without a variable, and without a message."""
    listed = system.shell("fi_info --list 2>&1").splitlines()
    return {line for line in listed if not line.startswith(" ")}


def packages(directory: Path) -> list[Path]:
    return sorted(each for each in directory.glob("*.deb") if "-dbgsym_" not in each.name)


def later(package: Path, target: Path, work: Path) -> None:
    """Write the package again with a later version; one module is gone, and another is new."""
    call(["dpkg-deb", "--raw-extract", package, work])
    control = work / "DEBIAN/control"
    (version,) = (
        line.split()[1] for line in control.read_text().splitlines() if line.startswith("Version:")
    )
    # The packages depend on each other in the same version.
    control.write_text(control.read_text().replace(version, f"{version}+later"))
    for module in work.rglob("site-packages/vicinal/__main__.py"):
        module.rename(module.with_name("later.py"))
    call(["dpkg-deb", "-Znone", "--build", "--root-owner-group", work, target / package.name])


def test_each_part_is_a_package() -> None:
    assert {each.name.partition("_")[0] for each in packages(built_debs())} == set(NAMES)


def test_the_packages_install(system: System, before: set[str], listed_before: set[str]) -> None:
    assert "tcp:" in listed_before
    assert not [each for each in before if "vicinal" in each]
    system.apt_get("install", *own(system))
    states = system.run("dpkg-query", "-W", "-f", "${db:Status-Status}\n", *NAMES)
    assert states.split() == ["installed"] * len(NAMES)
    assert system.run("getent", "group", "mpi").startswith("mpi:")


def test_libfabric_lists_the_provider_beside_its_own(
    system: System, listed_before: set[str]
) -> None:
    assert providers(system) - listed_before == {"vicinal:"}
    assert listed_before < providers(system)
    assert "provider: vicinal" not in system.run("fi_info")


def test_the_command_and_its_manual_pages_are_there(system: System) -> None:
    assert system.run("vicinal", "--version").startswith("vicinal ")
    assert "quick" in system.run("vicinal", "study", "list")
    for page in ("vicinal", "fi_vicinal"):
        assert system.run("man", "--where", page).startswith("/usr/share/man/")
    assert "libvicinal-fi.so" in system.run("vicinal", "doctor", "provider")


def test_studies_find_their_libraries_in_their_package(system: System) -> None:
    python = system.shell("echo /usr/lib/*/vicinal/python/bin/python3").strip()
    modules = "cryptography, jinja2, matplotlib, numpy, pyarrow, pyroute2, scipy"
    said = system.run(python, "-c", f"import {modules}; print(numpy.__file__)")
    assert said.startswith(str(Path(python).parents[1]))


def test_a_program_of_the_systems_mpi_runs_over_the_region(system: System) -> None:
    program = system.compile_program()
    assert system.run("vicinal", "run", "-n", 2, program) == "sum 1\n"
    assert used_region(system.shell(f"vicinal run -n 2 --paths {program} 2>&1"))


def test_a_later_version_takes_the_place_of_this_one(system: System, tmp_path: Path) -> None:
    target = system.root / "packages/later"
    target.mkdir()
    for package in packages(system.root / "packages"):
        later(package, target, tmp_path / package.stem)
    system.apt_get("install", *own(system, "packages/later"))
    versions = system.run("dpkg-query", "-W", "-f", "${Version}\n", *NAMES).split()
    assert all(each.endswith("+later") for each in versions)
    modules = {each for each in system.files() if "/site-packages/vicinal/" in each}
    assert [each.rpartition("/")[2] for each in modules if "later" in each] == ["later.py"]
    assert not [each for each in modules if each.endswith("/vicinal/__main__.py")]
    assert system.run("vicinal", "run", "-n", 2, system.compile_program()) == "sum 1\n"


def test_the_provider_stays_without_the_command(system: System) -> None:
    system.apt_get("remove", "vicinal")
    assert "/usr/bin/vicinal" not in system.files()
    assert "vicinal:" in providers(system)


def test_nothing_stays_after_a_purge(system: System, before: set[str]) -> None:
    known = system.run("dpkg-query", "-W", "-f", "${Package}\n", "*vicinal*").split()
    assert set(known) < set(NAMES)  # a package without settings is gone when it is removed
    system.apt_get("purge", *known)
    assert system.files() - before == set()
    assert "vicinal:" not in providers(system)
