"""The variables that select the provider, and general behaviour of the command line."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from launch_support import package_path

import vicinal as package
from vicinal.base.errors import VicinalError
from vicinal.mpi.environment import (
    PROVIDER_FILE,
    MessagePath,
    Mpi,
    mpi_environment,
    mpi_prefix,
    provider_directory,
    provider_path,
)


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "with a space"
    directory.mkdir()
    (directory / PROVIDER_FILE).touch()
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(directory))
    monkeypatch.delenv("FI_TCP_MAX_RX_SIZE", raising=False)
    return directory


def test_region_with_mpich(provider: Path) -> None:
    assert mpi_environment("mpich", "region", "file:/dev/shm/job") == {
        "FI_PROVIDER_PATH": str(provider),
        "FI_PROVIDER": "vicinal",
        "VICINAL_REGION": "file:/dev/shm/job",
        "FI_TCP_MAX_RX_SIZE": "256",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
    }


def test_region_with_open_mpi(provider: Path) -> None:
    assert mpi_environment(Mpi.OPENMPI, MessagePath.REGION) == {
        "FI_PROVIDER_PATH": str(provider),
        "FI_PROVIDER": "vicinal",
        "FI_TCP_MAX_RX_SIZE": "256",
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "OMPI_MCA_mtl_ofi_provider_include": "vicinal",
        "OMPI_MCA_btl": "self,ofi",
        "OMPI_MCA_btl_ofi_provider_include": "vicinal",
        "OMPI_MCA_osc": "^ucx",
    }


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_a_core_of_two_names_is_admitted_where_the_library_has_it(
    provider: Path, monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    monkeypatch.setenv("VICINAL_NET", "verbs;ofi_rxm")
    monkeypatch.setenv("FI_MR_CACHE_MONITOR", "userfaultfd")
    assert "FI_MR_CACHE_MONITOR" not in mpi_environment(mpi)
    monkeypatch.delenv("FI_MR_CACHE_MONITOR")
    variables = mpi_environment(mpi)
    assert variables["FI_MR_CACHE_MONITOR"] == "disabled"
    assert variables["FI_PROVIDER"] == "vicinal,verbs"
    assert variables["FI_OFI_RXM_USE_SRX"] == "1"
    first, own = variables["FI_PROVIDER_PATH"].split(":")
    assert first == str(provider)
    assert (Path(own) / "libverbs-fi.so").is_file()
    monkeypatch.setenv("VICINAL_NET", "tcp")
    assert mpi_environment(mpi)["FI_PROVIDER"] == "vicinal"
    assert mpi_environment(mpi, core="tcp;ofi_rxm")["FI_PROVIDER"] == "vicinal,tcp"
    assert mpi_environment(mpi, "network").keys().isdisjoint({"FI_PROVIDER_PATH"})


@pytest.mark.usefixtures("provider")
def test_a_size_that_the_user_chose_for_tcp_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FI_TCP_MAX_RX_SIZE", "4096")
    assert "FI_TCP_MAX_RX_SIZE" not in mpi_environment("mpich")


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("path", MessagePath)
@pytest.mark.parametrize("mpi", ["openmpi", "openmpi41"])
def test_one_sided_communication_does_not_go_by_ucx(
    monkeypatch: pytest.MonkeyPatch, mpi: str, path: MessagePath
) -> None:
    """The user can still choose ucx."""
    monkeypatch.delenv("OMPI_MCA_osc", raising=False)
    assert mpi_environment(mpi, path)["OMPI_MCA_osc"] == "^ucx"
    monkeypatch.setenv("OMPI_MCA_osc", "ucx")
    assert "OMPI_MCA_osc" not in mpi_environment(mpi, path)


@pytest.mark.usefixtures("provider")
def test_open_mpi_4_does_not_ask_for_atomics_it_ends_programs_at() -> None:
    assert mpi_environment("openmpi41")["OMPI_MCA_osc_rdma_acc_use_amo"] == "0"
    assert "OMPI_MCA_osc_rdma_acc_use_amo" not in mpi_environment("openmpi")


@pytest.mark.parametrize("mpi", Mpi)
@pytest.mark.parametrize("path", [MessagePath.NETWORK, MessagePath.SHARED_MEMORY])
def test_other_paths_need_no_provider(
    mpi: Mpi, path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", "/nowhere")
    variables = mpi_environment(mpi, path)
    assert variables
    assert not any(
        name.startswith("VICINAL") or value == "vicinal" for name, value in variables.items()
    )
    with pytest.raises(VicinalError, match="takes no region"):
        mpi_environment(mpi, path, "file:/dev/shm/job")


@pytest.mark.parametrize("mpi", Mpi)
def test_cross_memory_attach_can_be_switched(mpi: Mpi) -> None:
    on, off = (mpi_environment(mpi, "shared-memory", cma=cma) for cma in (True, False))
    assert on.keys() == off.keys()
    assert on != off


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("region", ["", "file:", "/dev/shm/job", "pci", "file:job", "shm:/x"])
def test_malformed_region_names(region: str) -> None:
    with pytest.raises(VicinalError, match="region"):
        mpi_environment("mpich", "region", region)


def test_without_a_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(tmp_path))
    with pytest.raises(VicinalError, match=PROVIDER_FILE):
        provider_directory()


def test_without_an_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VICINAL_MPICH", str(tmp_path))
    with pytest.raises(VicinalError, match="there is no MPICH"):
        mpi_prefix("mpich")


@pytest.mark.parametrize(
    ("mpi", "library"), [("mpich", "libmpi.so.12"), ("openmpi", "libmpi.so.40")]
)
def test_each_mpi_has_a_prefix_of_its_own(mpi: str, library: str) -> None:
    prefix = mpi_prefix(mpi)
    assert [path.name for path in (prefix / "lib").glob("libmpi.so.*")] == [library]


def test_a_shell_can_read_what_env_prints(vicinal: Vicinal, provider: Path) -> None:
    shutil.copy(CHECKOUT / "build/release/provider" / PROVIDER_FILE, provider)  # env loads it
    region = "file:/dev/shm/it's a job; $(touch /dev/shm/vicinal-oops)"
    printed = vicinal("env", "--mpi", "openmpi", "--region", region)
    assert printed.returncode == 0, printed.stderr
    shown = subprocess.run(
        ["sh", "-c", f'{printed.stdout}printf "%s\\n%s" "$VICINAL_REGION" "$FI_PROVIDER_PATH"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    value, _ = provider_path(Mpi.OPENMPI)
    assert value.startswith(f"{provider}:")
    assert shown.splitlines() == [region, value]
    *exports, comment = printed.stdout.splitlines()
    assert all(shlex.split(line)[0] == "export" for line in exports)
    assert comment.startswith("# FI_PROVIDER_PATH: ")


def test_a_command_loads_only_what_it_needs() -> None:
    """Each of these modules takes longer to load than all the rest together."""
    heavy = ("scipy", "matplotlib", "jsonschema")
    code = f"import sys, vicinal.cli; print(set(sys.modules) & set({heavy}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


def test_version(vicinal: Vicinal) -> None:
    assert vicinal("--version").stdout == f"vicinal {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [("no-such",), ("env",), ("env", "--mpi", "other"), ("env", "--no")],
)
def test_wrong_calls_are_one_line(vicinal: Vicinal, arguments: tuple[str, ...]) -> None:
    result = vicinal(*arguments)
    assert result.returncode == 2
    assert "--help`" in error_line(result)


def test_a_reader_that_goes_away_is_no_error(checkout: Path) -> None:
    result = subprocess.run(
        ["bash", "-c", "build/venv/bin/vicinal --help | true"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
