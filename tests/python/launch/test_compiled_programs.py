"""The measuring programs of an installed package: compiled on first use, into the user's cache."""

import os
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import fabric_program, memory_program, mpi_program
from vicinal.mpi.environment import mpi_prefix
from vicinal.mpi.libraries import Mpi


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of an installed package, which has the checkout's sources."""
    for mpi in (Mpi.MPICH, Mpi.OPENMPI):
        monkeypatch.setenv(f"VICINAL_{mpi.name}", str(mpi_prefix(mpi)))
    for module in ("vicinal.labs.programs", "vicinal.base.native", "vicinal.mpi.libraries"):
        monkeypatch.setattr(f"{module}.checkout", lambda: None)
    monkeypatch.setattr("vicinal.labs.programs.program_sources", lambda: CHECKOUT / "programs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vicinal/programs"


def test_a_program_is_compiled_once_for_each_mpi(cache: Path) -> None:
    program = mpi_program(Mpi.MPICH, "pairs")
    assert program.name == "pairs"
    assert program.is_relative_to(cache / "mpich")
    made = program.stat()
    again = mpi_program(Mpi.MPICH, "pairs")
    assert (again, again.stat().st_mtime_ns) == (program, made.st_mtime_ns)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert str(mpi_prefix("mpich") / "lib/libmpi.so.12") in linked
    assert mpi_program(Mpi.OPENMPI, "pairs").is_relative_to(cache / "openmpi")


def test_a_program_of_several_files_is_compiled_whole(cache: Path) -> None:
    assert os.access(mpi_program(Mpi.MPICH, "verify"), os.X_OK)
    assert os.access(memory_program(), os.X_OK)
    assert os.access(fabric_program("exchange"), os.X_OK)
    made = {each.parent.parent.name for each in cache.rglob("*") if each.is_file()}
    assert made == {"fabric", "mpich"}


def test_another_source_makes_another_program(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = mpi_program(Mpi.MPICH, "pairs")
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in (CHECKOUT / "programs").glob("*.[ch]"):
        (sources / path.name).write_bytes(path.read_bytes())
    (sources / "pairs.c").write_text((sources / "pairs.c").read_text() + "/* changed */\n")
    monkeypatch.setattr("vicinal.labs.programs.program_sources", lambda: sources)
    assert mpi_program(Mpi.MPICH, "pairs").parent != first.parent
    (sources / "pairs.c").write_text("#error broken\n")
    with pytest.raises(VicinalError, match=r"pairs could not be compiled: .*error.*broken"):
        mpi_program(Mpi.MPICH, "pairs")
    assert first.is_relative_to(cache)


def test_what_is_missing_is_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(VicinalError, match="no source of the program other"):
        mpi_program(Mpi.MPICH, "other")
    own = tmp_path / "own"
    for file in ("lib/libmpi.so.12", "bin/mpiexec"):
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).touch(mode=0o755)
    monkeypatch.setenv("VICINAL_MPICH", str(own))
    with pytest.raises(VicinalError, match=f"MPICH has no {own}/bin/mpicc, which compiles"):
        mpi_program(Mpi.MPICH, "pairs")
    monkeypatch.setenv("PATH", str(tmp_path))
    (own / "bin/mpicc").touch(mode=0o755)
    with pytest.raises(VicinalError, match="there is no C compiler") as refused:
        mpi_program(Mpi.MPICH, "pairs")
    assert "apt-get install gcc" in refused.value.remedy
    assert not cache.exists()
