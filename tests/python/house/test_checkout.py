"""Whether the package runs from a source tree or is installed, and where its native files are."""

import sys
from pathlib import Path

import pytest
from command_support import CHECKOUT

import vicinal
from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError
from vicinal.base.native import (
    PROVIDER_FILE,
    native_directory,
    own_trees,
    parsed_studies,
    program_sources,
)
from vicinal.mpi.environment import provider_directory


def test_these_tests_run_from_a_checkout() -> None:
    assert checkout() == CHECKOUT


def test_the_appliance_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the appliance, the provider's folder is next to site-packages."""
    (tmp_path / "provider").mkdir()
    package = tmp_path / "site-packages/vicinal"
    package.mkdir(parents=True)
    monkeypatch.setattr(vicinal, "__file__", str(package / "__init__.py"))
    assert checkout() is None


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is installed in a prefix without native files."""
    monkeypatch.delenv("VICINAL_PROVIDER_DIR", raising=False)
    package = tmp_path / "prefix/lib/python3/site-packages/vicinal"
    package.mkdir(parents=True)
    monkeypatch.setattr(vicinal, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return package


def put_native_files(directory: Path) -> None:
    (directory / "programs").mkdir(parents=True)
    (directory / PROVIDER_FILE).touch()
    (directory / "studies.json").touch()


def test_a_checkout_has_its_own_native_files() -> None:
    assert native_directory() == CHECKOUT / "build/release/provider"
    assert program_sources() == CHECKOUT / "programs"
    assert parsed_studies() == CHECKOUT / "build/studies.json"
    assert own_trees() == [CHECKOUT]


def test_a_wheel_has_them_in_the_package(installed: Path) -> None:
    put_native_files(installed.parents[2] / "vicinal")  # of another installation
    own = installed / "_native"
    put_native_files(own)
    assert native_directory() == provider_directory() == own
    assert program_sources() == own / "programs"
    assert parsed_studies() == own / "studies.json"
    assert own_trees() == [installed.parents[3]]


@pytest.mark.parametrize("place", ["lib/vicinal", "lib64/vicinal", "lib/libfabric"])
def test_a_prefix_has_them_in_its_libraries(installed: Path, place: str) -> None:
    own = installed.parents[3] / place
    put_native_files(own)
    assert native_directory() == own


def test_an_installation_says_where_they_are(installed: Path, tmp_path: Path) -> None:
    own = tmp_path / "elsewhere/with a space"
    put_native_files(own)
    (installed / "native_directory").write_text(f"{own}\n")
    assert native_directory() == own
    assert own_trees() == [tmp_path / "prefix", own]


def test_an_installation_without_them_has_a_remedy(installed: Path) -> None:
    (installed / "native_directory").write_text("/nowhere\n")
    assert program_sources() is None
    with pytest.raises(VicinalError, match=r"has no libvicinal-fi\.so: install a wheel"):
        provider_directory()
