"""MPI libraries by name and by prefix: found, distinguished, and refused with a remedy."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_support import Vicinal, error_line
from launch_support import ONE_MPI

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import mpi_program
from vicinal.launch.launcher import host_launcher, launcher
from vicinal.mpi.environment import PROVIDER_FILE, mpi_environment, mpi_prefix
from vicinal.mpi.job import Job
from vicinal.mpi.libfabric import (
    check_loads_provider,
    libfabric_of,
    libfabric_version,
    mpi_version,
)
from vicinal.mpi.libraries import (
    Family,
    Mpi,
    default_installation,
    installation,
    installation_in,
    installation_of,
    mpi_variable,
)
from vicinal.mpi.placement import Placement

MPICH_SAYS = "MPICH Version:      4.0.2\\nMPICH Device:       %s\\n"

Make = Callable[..., Path]


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / PROVIDER_FILE).touch()
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def make_mpi(tmp_path: Path) -> Make:
    """A function that makes a prefix: its library prints a text, its libfabric has a version."""

    def make(
        library: str, says: str, launcher: str = "mpiexec", libfabric: tuple[int, int] | None = None
    ) -> Path:
        prefix = tmp_path / "own mpi"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "lib").mkdir()
        (prefix / "bin" / launcher).touch(mode=0o755)
        linked = []
        if libfabric is not None:
            source = (
                f"unsigned fi_version(void) {{ return {libfabric[0]} << 16 | {libfabric[1]}; }}"
            )
            compile_library(prefix / "lib" / "libfabric.so.1", source)
            linked = [str(prefix / "lib" / "libfabric.so.1"), "-Wl,-rpath,$ORIGIN"]
        source = (
            "#include <string.h>\n"
            "unsigned fi_version(void) __attribute__((weak));\n"
            "int MPI_Get_library_version(char *text, int *length) {\n"
            f'    strcpy(text, "{says}"); *length = fi_version ? 1 : 0; return 0;\n'
            "}\n"
        )
        compile_library(prefix / "lib" / library, source, *linked)
        return prefix

    return make


def compile_library(target: Path, source: str, *more: str) -> None:
    command = ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{target.name}"]
    command += ["-x", "c", "-", "-x", "none", *more, "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)


# --- by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", Mpi)
def test_a_named_mpi_that_is_missing_has_a_remedy(
    mpi: Mpi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mpi_variable(mpi), str(tmp_path))
    with pytest.raises(VicinalError, match=f"set {mpi_variable(mpi)} to the prefix") as caught:
        installation(mpi)
    assert caught.value.message == f"there is no {mpi.full_name} in {tmp_path}"


def test_the_remedy_names_the_target_that_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mpi in Mpi:
        monkeypatch.delenv(mpi_variable(mpi), raising=False)
    monkeypatch.setattr("vicinal.mpi.libraries.checkout", lambda: tmp_path)
    monkeypatch.setattr("vicinal.mpi.libraries._SYSTEM_PREFIX", tmp_path)
    wanted = {
        Mpi.MPICH: "run `make` in",
        Mpi.OPENMPI: "run `make` in",
        Mpi.OPENMPI_DEBIAN: "apt-get install openmpi-bin",
    }
    for mpi in Mpi:
        with pytest.raises(VicinalError, match=wanted.get(mpi, "run `make mpis` in")):
            installation(mpi)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package on a host without MPI libraries; its virtual environment."""
    for mpi in Mpi:
        monkeypatch.delenv(mpi_variable(mpi), raising=False)
    for name in ("PATH", "LD_LIBRARY_PATH", "I_MPI_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("vicinal.mpi.libraries.checkout", lambda: None)
    monkeypatch.setattr("vicinal.mpi.libraries._SYSTEM_PREFIX", tmp_path / "usr")
    red_hat = (tmp_path / "usr/lib64/mpich", tmp_path / "usr/lib64/openmpi")
    monkeypatch.setattr("vicinal.mpi.libraries._RED_HAT_PREFIXES", red_hat)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    return tmp_path / "venv"


def put_mpi(prefix: Path, library: str, *programs: str) -> Path:
    for file in (library, *(f"bin/{name}" for name in programs)):
        (prefix / file).parent.mkdir(parents=True, exist_ok=True)
        (prefix / file).touch(mode=0o755)
    return prefix


def test_outside_a_checkout_what_is_missing_has_a_remedy(bare: Path) -> None:
    with pytest.raises(VicinalError) as caught:
        default_installation()
    assert caught.value.message == "MPICH was not found"
    assert caught.value.remedy == (
        "run `pip install 'vicinal[mpich]'`, put its bin/ into PATH, or set VICINAL_MPICH to the "
        "prefix of an installed one"
    )
    put_mpi(bare, "lib/libmpi.so.12", "mpiexec")
    with pytest.raises(VicinalError, match=r"MPICH 4\.3 was not found: set VICINAL_MPICH43 to"):
        installation(Mpi.MPICH43)


def test_outside_a_checkout_the_nearest_mpi_of_a_family_is_taken(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The virtual environment, PATH, LD_LIBRARY_PATH, and directories of Red Hat and Debian."""
    places = [
        put_mpi(tmp_path / "usr", "lib/x86_64-linux-gnu/libmpich.so.12", "mpiexec.mpich"),
        put_mpi(tmp_path / "usr/lib64/mpich", "lib/libmpi.so.12", "mpiexec"),
        put_mpi(tmp_path / "loaded", "lib/libmpi.so.12", "mpiexec.hydra"),
        put_mpi(tmp_path / "module", "lib64/libmpi.so.12", "mpiexec"),
        put_mpi(bare, "lib/libmpi.so.12", "mpiexec"),
    ]
    put_mpi(tmp_path / "usr", "lib/x86_64-linux-gnu/libmpi.so.40", "mpirun.openmpi")
    put_mpi(tmp_path / "other", "lib/libmpi.so.40", "mpirun")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/none/lib:{tmp_path}/loaded/lib")
    monkeypatch.setenv("PATH", f"{tmp_path}/other/bin:{tmp_path}/module/bin")
    while places:
        found = installation(Mpi.MPICH)
        prefix = places.pop()
        assert (found.prefix, found.name) == (prefix, "mpich")
        shutil.rmtree(prefix / "bin")
        if prefix.name == "usr":
            break
    assert installation(Mpi.OPENMPI).prefix == tmp_path / "other"
    assert default_installation().name == "openmpi"


def test_outside_a_checkout_intel_mpi_is_found_by_its_root_before_path(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = ("mpiexec.hydra", "hydra_bstrap_proxy")
    root = put_mpi(tmp_path / "oneapi/mpi/latest", "lib/release/libmpi.so.12", *programs)
    other = put_mpi(tmp_path / "module", "lib/libmpi.so.12", *programs)
    monkeypatch.setenv("PATH", f"{other}/bin")
    assert installation(Mpi.INTEL).prefix == other
    monkeypatch.setenv("I_MPI_ROOT", str(root))
    assert installation(Mpi.INTEL).prefix == root
    in_venv = put_mpi(bare, "lib/libmpi.so.12", *programs)
    assert installation(Mpi.INTEL).prefix == in_venv


@pytest.mark.parametrize(
    ("beside", "family"), [("libmpi.so.12", "mpich"), ("libopen-pal.so.90", "openmpi")]
)
def test_a_library_of_the_standard_interface_has_an_installation(
    tmp_path: Path, beside: str, family: str
) -> None:
    prefix = put_mpi(tmp_path / "own", f"lib/{beside}", "mpiexec", "mpirun")
    put_mpi(prefix, "lib/libmpi_abi.so.1")
    found = installation_of(prefix / "lib/libmpi_abi.so.1")
    assert found is not None
    assert (found.family, found.prefix) == (family, prefix)


def test_another_mpi_in_its_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_INTEL", str(mpi_prefix("mpich")))
    with pytest.raises(VicinalError, match="is MPICH, not Intel MPI"):
        installation("intel")


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_libraries_say_who_they_are(mpi: str) -> None:
    found = installation(mpi)
    assert found.family == mpi
    assert mpi_version(found).startswith("5.0.")
    library = libfabric_of(found)
    assert library is not None
    assert library.is_relative_to(found.prefix)
    assert libfabric_version(library) >= (2, 5)
    check_loads_provider(found)


@pytest.mark.usefixtures("provider")
def test_intel_mpi_gets_a_stock_libfabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("I_MPI_OFI_LIBRARY", raising=False)
    variables = mpi_environment("intel")
    assert variables["I_MPI_FABRICS"] == "ofi"
    assert variables["I_MPI_OFI_PROVIDER"] == variables["FI_PROVIDER"] == "vicinal"
    assert variables["I_MPI_OFI_LIBRARY"] == str(libfabric_of(installation("mpich")))
    chosen = tmp_path / "libfabric.so.1"
    monkeypatch.setenv("I_MPI_OFI_LIBRARY", str(chosen))
    says = f"{chosen} does not exist: set I_MPI_OFI_LIBRARY to such a library"
    with pytest.raises(VicinalError, match=says):
        mpi_environment("intel")
    chosen.touch()
    assert mpi_environment("intel")["I_MPI_OFI_LIBRARY"] == str(chosen)
    monkeypatch.setattr("vicinal.mpi.environment.stock_libfabric", lambda: None)
    with pytest.raises(VicinalError, match="none was found"):
        mpi_environment("intel")


# --- launchers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "program", "starts", "variable"),
    [
        ("libmpi.so.12", "mpiexec", ["-launcher", "ssh", "-launcher-exec"], "HWLOC_XMLFILE"),
        ("libmpi.so.40", "mpirun", ["--host", "a:2,b:1", "-n", "3"], "OMPI_MCA_plm_rsh_agent"),
    ],
)
def test_launchers_are_called_in_their_own_way(
    make_mpi: Make, library: str, program: str, starts: list[str], variable: str
) -> None:
    prefix = make_mpi(library, "", program)
    placements = [Placement("a", 2), Placement("b", 1)]
    found = installation_in(prefix)
    command, variables = launcher(found, placements, ["prog"], {"PATH": "/bin", "PMI_RANK": "1"})
    assert command[0] == str(prefix / "bin" / program)
    assert command[1 : 1 + len(starts)] == starts
    assert "a:2,b:1" in command
    assert command[-1] == "prog"
    assert variable in variables
    assert "PMI_RANK" not in variables
    assert variables["PATH"] == f"{prefix}/bin:/bin"
    assert variables["MPI4PY_LIBMPI"] == str(prefix / "lib" / library)


def test_intel_mpi_is_told_from_mpich(make_mpi: Make) -> None:
    prefix = make_mpi("libmpi.so.12", "Intel(R) MPI Library 2021.18.1 for Linux* OS")
    (prefix / "bin" / "hydra_bstrap_proxy").touch()
    with pytest.raises(VicinalError, match=r"library of Intel MPI but no bin/mpiexec\.hydra"):
        installation_in(prefix)
    (prefix / "bin" / "mpiexec.hydra").touch()
    found = installation_in(prefix)
    assert found.family is Family.INTEL
    assert mpi_version(found) == "2021.18.1"
    command, variables = launcher(found, [Placement("a", 1)], ["prog"], {})
    assert command[1:3] == ["-bootstrap", "ssh"]
    assert variables["I_MPI_ROOT"] == str(prefix)


# --- by prefix -----------------------------------------------------------------------------


def test_a_prefix_that_has_a_name_is_known_by_it() -> None:
    found = installation_in(mpi_prefix("openmpi"))
    assert (found.name, found.family) == ("openmpi", Family.OPENMPI)


@pytest.mark.parametrize("option", ["run", "env"])
def test_a_wrong_prefix_is_one_line(vicinal: Vicinal, tmp_path: Path, option: str) -> None:
    program = ["-n", 2, "true"] if option == "run" else []
    arguments = [option, "--mpi-prefix", tmp_path / "missing", *program]
    assert "there is no directory" in error_line(vicinal(*arguments))
    arguments = [option, "--mpi-prefix", tmp_path, *program]
    assert f"there is no MPI library in {tmp_path}" in error_line(vicinal(*arguments))
    arguments = [option, "--mpi", "mpich", "--mpi-prefix", tmp_path, *program]
    assert "leave out one of the two" in error_line(vicinal(*arguments))


def test_a_library_without_its_launcher_is_told(make_mpi: Make) -> None:
    prefix = make_mpi("libmpi.so.40", "", "other")
    with pytest.raises(VicinalError, match="library of Open MPI but no bin/mpirun"):
        installation_in(prefix)


def test_an_mpich_without_libfabric_is_refused(make_mpi: Make, vicinal: Vicinal) -> None:
    prefix = make_mpi("libmpich.so.12", MPICH_SAYS % "ch4:ucx")
    line = error_line(vicinal("run", "-n", 2, "--mpi-prefix", prefix, "true"))
    assert f"the MPICH in {prefix} has no libfabric: its only device is ch4:ucx" in line
    assert "use another MPI library, such as `--mpi mpich`" in line
    assert "ch4:ucx" in error_line(vicinal("env", "--mpi-prefix", prefix))


def test_an_mpich_with_its_own_libfabric_inside_is_refused(make_mpi: Make) -> None:
    found = installation_in(make_mpi("libmpi.so.12", MPICH_SAYS % "ch4:ofi"))
    with pytest.raises(VicinalError, match=r"uses no libfabric\.so\.1"):
        check_loads_provider(found)


def test_a_libfabric_that_is_too_old_is_refused(make_mpi: Make, vicinal: Vicinal) -> None:
    prefix = make_mpi("libmpi.so.12", MPICH_SAYS % "ch4:ofi", libfabric=(1, 10))
    line = error_line(vicinal("run", "-n", 2, "--mpi-prefix", prefix, "true"))
    assert f"{prefix}/lib/libfabric.so.1 of the MPICH in {prefix} is libfabric 1.10" in line
    assert "Vicinal needs 1.17: install a newer libfabric" in line


def test_the_oldest_libfabric_is_accepted(make_mpi: Make) -> None:
    check_loads_provider(
        installation_in(make_mpi("libmpi.so.12", MPICH_SAYS % "ch4:ofi", libfabric=(1, 17)))
    )


def test_a_broken_libfabric_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "libfabric.so.1"
    broken.write_text("no library")
    with pytest.raises(VicinalError, match="cannot be loaded as libfabric"):
        libfabric_version(broken)


# --- by the library that the program is linked with ----------------------------------------


def test_a_program_brings_its_own_mpi(make_mpi: Make, tmp_path: Path) -> None:
    """The library lies outside of every known prefix. Its own prefix's launcher starts it."""
    prefix = make_mpi("libmpi.so.12", MPICH_SAYS % "ch4:ofi", libfabric=(2, 0))
    program = tmp_path / "program"
    source = "int MPI_Get_library_version(char *, int *); char text[65536]; int n;\n"
    source += "int main(void) { return MPI_Get_library_version(text, &n); }\n"
    library = prefix / "lib" / "libmpi.so.12"
    command = ["gcc", "-x", "c", "-", "-x", "none", str(library), "-o", str(program)]
    command += [f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    found, is_found = Job([str(program)], ranks=1).resolved_mpi()
    assert (found.library, found.launcher, is_found) == (library, prefix / "bin/mpiexec", True)
    # If another MPI was requested, the loader would find the wrong library.
    found, is_found = Job([str(program)], ranks=1, mpi="mpich").resolved_mpi()
    assert (found.name, is_found) == ("mpich", False)


def compiled(path: Path, source: str, *options: str) -> Path:
    command = ["gcc", "-x", "c", "-", "-o", str(path), *options]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return path


def test_a_program_with_another_mpi_in_it_is_refused(vicinal: Vicinal, tmp_path: Path) -> None:
    """Linked dynamically or statically, named directly or behind a wrapper: one line says so."""
    program = mpi_program(Mpi.MPICH, "latency")
    says = "is linked with MPICH, and Open MPI was chosen to start the program: choose --mpi mpich"
    for command in ([program], ["env", "A=b", program], ["nice", "sh", "-c", "true", program]):
        line = error_line(vicinal("run", "-n", 2, "--mpi", "openmpi", *command))
        assert f"{program} {says}" in line
    static = compiled(tmp_path / "static", "int MPIR_Process; int main(void) { return 0; }")
    with pytest.raises(VicinalError, match=f"{static} {says}"):
        Job([str(static)], ranks=1, mpi="openmpi").resolved_mpi()
    other = mpi_program(Mpi.OPENMPI, "latency")
    with pytest.raises(VicinalError, match="linked with Open MPI, and MPICH was chosen"):
        Job(["/usr/bin/env", str(other)], ranks=1).resolved_mpi()


def test_a_program_with_the_chosen_mpi_or_none_is_started(tmp_path: Path) -> None:
    static = compiled(tmp_path / "static", "int MPIR_Process; int main(void) { return 0; }")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nexec {mpi_program(Mpi.OPENMPI, 'latency')}\n")
    script.chmod(0o755)
    stripped = compiled(tmp_path / "stripped", "int main(void) { return 0; }", "-s")
    for command, mpi in (
        ([static], "mpich"),
        ([script], "openmpi"),
        ([script, tmp_path, "latency"], "mpich"),
        ([stripped], "openmpi"),
        (["/usr/bin/env", mpi_program(Mpi.OPENMPI, "latency")], "openmpi"),
        ([mpi_program(Mpi.MPICH, "latency"), mpi_program(Mpi.OPENMPI, "latency")], "mpich"),
    ):
        chosen, _ = Job([*map(str, command)], ranks=1, mpi=mpi).resolved_mpi()
        assert chosen.name == mpi


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_copy_elsewhere_runs_by_its_prefix(vicinal: Vicinal, tmp_path: Path, mpi: str) -> None:
    """A user's own MPI is such a copy. Here it is a wheel's MPI in an unknown directory."""
    prefix = tmp_path / "copy"
    shutil.copytree(mpi_prefix(mpi), prefix, symlinks=True)
    program = tmp_path / "program.c"
    program.write_text(
        "#include <mpi.h>\n#include <stdio.h>\n"
        "int main(int c, char **v) { int r, s; MPI_Init(&c, &v);\n"
        "MPI_Comm_rank(MPI_COMM_WORLD, &r);\n"
        "MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);\n"
        'if (r == 0) printf("sum %d\\n", s);\nreturn MPI_Finalize(); }\n'
    )
    binary = tmp_path / "program"
    subprocess.run([str(prefix / "bin" / "mpicc"), "-o", str(binary), str(program)], check=True)
    clean = {name: "" for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    result = vicinal("run", "-n", 2, "--mpi-prefix", prefix, binary, **clean)
    assert (result.returncode, result.stdout) == (0, "sum 1\n"), result.stderr


def test_a_program_of_the_standard_interface_runs_by_its_own_prefix(
    vicinal: Vicinal, tmp_path: Path
) -> None:
    """mpicc_abi links with libmpi_abi.so, which no table of known libraries names."""
    prefix = tmp_path / "copy"
    shutil.copytree(mpi_prefix("mpich"), prefix, symlinks=True)
    source = tmp_path / "program.c"
    source.write_text(
        "#include <mpi.h>\n#include <stdio.h>\n"
        "int main(int c, char **v) { int s; MPI_Init(&c, &v);\n"
        'MPI_Comm_size(MPI_COMM_WORLD, &s); printf("%d ranks\\n", s); return MPI_Finalize(); }\n'
    )
    binary = tmp_path / "program"
    subprocess.run([str(prefix / "bin/mpicc_abi"), "-o", str(binary), str(source)], check=True)
    found, is_found = Job([str(binary)], ranks=1).resolved_mpi()
    assert (found.prefix, is_found) == (prefix, False)
    result = vicinal("run", "-n", 2, binary)
    assert (result.returncode, result.stdout) == (0, "2 ranks\n" * 2), result.stderr
    line = error_line(vicinal("run", "-n", 2, "--mpi", "openmpi", binary))
    assert "is linked with libmpi_abi.so.1, the standard's own binary interface" in line


def test_root_is_told_what_open_mpi_asks_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """This concerns hosts. Nodes are made for jobs, and every user is root in them."""
    mpi = installation("openmpi")
    hosts = [Placement("a", 1), Placement("b", 1)]
    allowed = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
    assert launcher(mpi, hosts, ["true"], {})[1].items() >= allowed.items()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for lacking in ({}, {"OMPI_ALLOW_RUN_AS_ROOT": "1"}, allowed | {"OMPI_ALLOW_RUN_AS_ROOT": "0"}):
        with pytest.raises(VicinalError) as refused:
            host_launcher(mpi, hosts, ["true"], lacking, {})
        assert refused.value.message == "Open MPI's launcher refuses to run as root"
        assert all(f"{name}=1" in refused.value.remedy for name in allowed)
    host_launcher(mpi, hosts, ["true"], allowed, {})
    host_launcher(installation("mpich"), hosts, ["true"], {}, {})
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    host_launcher(mpi, hosts, ["true"], {}, {})
