"""`vicinal slurm`: its files, and regions of jobs, without a Slurm."""

import os
from pathlib import Path

import pytest
from command_support import Vicinal, error_line

from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm import checks, files, installation, job_regions, sweeping
from vicinal.integrations.slurm.installation import Wanted
from vicinal.region import inspect

WANTED = Wanted("required /plugin.so\n", "A=1\n")


@pytest.fixture
def found(tmp_path: Path) -> files.Files:
    (tmp_path / "slurm.conf").write_text("ClusterName=test\n")
    return files.find_files(tmp_path / "slurm.conf")


def tree(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


# --- files ---------------------------------------------------------------------------------


def test_what_is_installed_is_removed_again(found: files.Files, tmp_path: Path) -> None:
    before = tree(tmp_path)
    assert len(installation.install(found, WANTED)) == 3
    there = tree(tmp_path)
    assert there["plugstack.conf"] == f"include {tmp_path}/plugstack.conf.d/vicinal.conf\n"
    assert installation.install(found, WANTED) == []
    assert tree(tmp_path) == there
    assert len(installation.remove(found)) == 3
    assert tree(tmp_path) == before
    assert not (tmp_path / "plugstack.conf.d").exists()
    assert installation.remove(found) == []


def test_what_others_wrote_stays(found: files.Files, tmp_path: Path) -> None:
    found.plugstack.write_text("required /other.so")  # the last line has no newline
    found.plugstack.chmod(0o640)
    found.include.parent.mkdir()
    (found.include.parent / "other.conf").write_text("optional /third.so\n")
    installation.install(found, WANTED)
    assert found.plugstack.read_text().splitlines() == ["required /other.so", found.line]
    assert found.plugstack.stat().st_mode & 0o777 == 0o640
    installation.remove(found)
    assert tree(tmp_path).keys() == {
        "slurm.conf",
        "plugstack.conf",
        "plugstack.conf.d/other.conf",
    }
    assert found.plugstack.read_text() == "required /other.so\n"


def test_a_pattern_that_includes_it_is_enough(found: files.Files, tmp_path: Path) -> None:
    """Debian's plugstack.conf has such a pattern."""
    text = f"include {tmp_path}/plugstack.conf.d/*.conf\n"
    found.plugstack.write_text(text)
    found.include.parent.mkdir()
    installation.install(found, WANTED)
    assert found.plugstack.read_text() == text
    installation.remove(found)
    assert found.plugstack.read_text() == text
    assert found.include.parent.is_dir()


def test_an_installation_that_ends_early_loads_nothing(
    found: files.Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that loads the plugin is written last, when all files that it names exist."""

    def replace(self: Path, _target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(OSError, match="No space"):
            installation.install(found, WANTED)
    assert not found.plugstack.exists()
    assert not found.variables.exists()
    assert len(installation.install(found, WANTED)) == 3


def test_slurm_conf_says_where_plugins_are_named(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("# PlugStackConfig=/no\nplugstackconfig = /elsewhere/stack.conf # yes\n")
    assert files.find_files(conf).plugstack == Path("/elsewhere/stack.conf")


def test_a_path_that_plugstack_conf_cannot_hold() -> None:
    good = Path("/usr/bin/vicinal")
    for bad in ("/a b", "/a#b", "/a=b", "a"):
        with pytest.raises(VicinalError, match=r"plugstack\.conf cannot contain the path"):
            files.include_text(good, good, good, Path(bad), good, 1024)


def test_vlans_of_vfs() -> None:
    good = Path("/usr/bin/vicinal")
    paths = (good,) * 5
    text = files.include_text(*paths, 1024, vfs=True, vlans=range(1000, 2000))
    assert " vfs=vf vlans=1000-1999\n" in text
    assert "vlans" not in files.include_text(*paths, 1024, vfs=True)


def test_the_commands(vicinal: Vicinal, tmp_path: Path) -> None:
    try:
        files.find_plugin()
    except VicinalError as error:  # not every host has Slurm's headers
        pytest.skip(str(error))
    assert "does not exist" in error_line(
        vicinal("slurm", "install", "--slurm-conf", tmp_path / "none")
    )
    conf = tmp_path / "slurm.conf"
    conf.write_text("JobContainerType=job_container/tmpfs\n")
    vlans = ("slurm", "install", "--slurm-conf", conf, "--vlans", "1-9")
    assert "applies only to VFs: add --vfs" in error_line(vicinal(*vlans))
    options = ("--slurm-conf", conf, "--directory", "/dev/shm/vicinal-slurm-test")
    before = vicinal("slurm", "check", *options)
    assert before.returncode == 1
    assert (
        "vicinal.variables lacks the expected contents: run `vicinal slurm install`"
        in before.stdout
    )
    assert vicinal("slurm", "install", *options).returncode == 0
    after = vicinal("slurm", "check", *options)
    assert "ok: " in after.stdout
    assert "does not include" not in after.stdout
    assert "is hidden from jobs by job_container/tmpfs" in after.stdout
    # `check` knows the options of `install`. An option with another value is a difference.
    told = (
        *("--max-size", "1G", "--mpi", "mpich", "--vfs", "--vlans", "5-9"),
        *("--host-network", "--python", "/usr/bin/python3"),
    )
    assert vicinal("slurm", "install", *options, *told).returncode == 0
    again = vicinal("slurm", "check", "--slurm-conf", conf).stdout
    assert f"ok: {tmp_path}/plugstack.conf.d/vicinal.conf has the expected contents" in again
    assert f"ok: {tmp_path}/vicinal.variables has the expected contents" in again
    assert "/dev/shm/vicinal-slurm-test is hidden" in again
    other = vicinal("slurm", "check", "--slurm-conf", conf, "--directory", "/run/other").stdout
    assert f"missing: {tmp_path}/plugstack.conf.d/vicinal.conf lacks the expected contents" in other
    assert vicinal("slurm", "install", *options).returncode == 0
    assert "note: MpiDefault" in after.stdout
    lines = (tmp_path / "vicinal.variables").read_text().splitlines()
    assert "FI_PROVIDER=vicinal" in lines
    assert "MPIR_CVAR_NOLOCAL=1" in lines
    assert "OMPI_MCA_mtl=ofi" in lines
    assert vicinal("slurm", "remove", "--slurm-conf", conf).returncode == 0
    assert tree(tmp_path).keys() == {"slurm.conf"}


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("", False),  # the default of Slurm
        ("ProctrackType=proctrack/cgroup\nPrologFlags=Alloc\n", False),
        ("PrologFlags=Alloc,contain\n", True),
        ("PrologFlags=X11\n", True),
        ("ProctrackType=proctrack/linuxproc\n", True),
    ],
)
def test_groups_that_end_with_each_step_are_told(
    found: files.Files, tmp_path: Path, text: str, good: bool
) -> None:
    """Jobs with nodes are refused there: test_slurm_nodes_cgroups.py."""
    found.slurm_conf.write_text(text)
    nothing = tmp_path / "nothing"
    wanted = {"plugin": nothing, "command": nothing, "python": nothing, "regions": tmp_path}
    looked = [each for each in checks.check(found, WANTED, **wanted) if "PrologFlags" in each.text]
    assert [each.good for each in looked] == [good]
    assert ("PrologFlags=Contain" in looked[0].line) is not good
    assert not looked[0].needed


def test_a_plugin_without_pmix_is_told(found: files.Files, tmp_path: Path) -> None:
    """This concerns a host whose srun has PMIx. Here a fake srun says so."""
    plugin = tmp_path / "plugin"
    commands = tmp_path / "bin"
    commands.mkdir()
    wanted = {"plugin": plugin, "command": plugin, "python": plugin, "regions": tmp_path}
    for listed, built, said in (
        ("none pmi2", b"", ["note: srun does not know --mpi=pmix: Open MPI needs it"]),
        ("none pmix", b"", ["ok: srun knows --mpi=pmix", "note: the plugin was built without"]),
        ("pmix_v4 pmi2", b"-libpmix.so.2-", ["ok: srun knows", "ok: the plugin was built with P"]),
    ):
        (commands / "srun").write_text(f"#!/bin/sh\necho '{listed}' >&2\n")
        (commands / "srun").chmod(0o755)
        plugin.write_bytes(built)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
            every = list(checks.check(found, WANTED, **wanted))
        looked = [each for each in every if "mpi=pmix" in each.text or "built" in each.text]
        (default,) = [each for each in every if "MpiDefault" in each.text]
        best = "pmix" if "pmix" in listed else "pmi2"
        assert f"write MpiDefault={best}" in default.remedy
        assert len(looked) == len(said)
        assert all(each.line.startswith(start) for each, start in zip(looked, said, strict=True))
        assert not [each for each in looked if each.needed]


# --- regions -------------------------------------------------------------------------------


def test_of_two_that_make_a_region_one_wins(tmp_path: Path) -> None:
    directory = tmp_path / "regions"
    before = os.umask(0o077)  # daemons may have this umask
    try:
        region = job_regions.make(directory, 7, os.geteuid(), tasks=2)
    finally:
        os.umask(before)
    made = inspect(region, patience=0).header
    assert made.members >= 4
    assert job_regions.make(directory, 7, os.geteuid(), tasks=30) == region
    assert inspect(region, patience=0).header == made
    assert [path.name for path in directory.iterdir()] == ["job-7"]
    assert directory.stat().st_mode & 0o777 == 0o755
    assert region.stat().st_mode & 0o777 == 0o600


def test_a_region_that_is_larger_than_allowed(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match=r"a region of 62 members takes .* allows 1.0 MiB"):
        job_regions.make(tmp_path / "regions", 7, 0, tasks=30, max_bytes=1 << 20)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_others_write_to(tmp_path: Path) -> None:
    directory = tmp_path / "regions"
    directory.mkdir()
    directory.chmod(0o777)
    (tmp_path / "link").symlink_to(directory)
    for each in (directory, tmp_path / "link"):
        with pytest.raises(VicinalError, match="is not a directory that only this user can write"):
            job_regions.make(each, 7, os.geteuid(), tasks=2)
    assert not list(directory.iterdir())


def test_only_regions_of_jobs_that_are_gone_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "regions"
    for job in (1, 2):
        job_regions.make(directory, job, os.geteuid(), tasks=2)
    for name in ("job-3.99", "job-4x", "other"):
        (directory / name).write_text("")
    monkeypatch.setattr(sweeping, "active_jobs", lambda: {2})
    swept = sweeping.sweep(directory)
    assert [path.name for path in swept] == ["job-1", "job-3.99"]
    assert sorted(path.name for path in directory.iterdir()) == ["job-2", "job-4x", "other"]
    assert sweeping.sweep(tmp_path / "none") == []


def test_nothing_is_swept_while_slurm_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = job_regions.make(tmp_path, 1, os.geteuid(), tasks=2)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(VicinalError, match="squeue was not found"):
        sweeping.sweep(tmp_path)
    squeue = tmp_path / "bin/squeue"
    squeue.write_text("#!/bin/sh\nexit 1\n")
    squeue.chmod(0o755)
    with pytest.raises(VicinalError, match="so nothing was done"):
        sweeping.sweep(tmp_path)
    assert region.exists()
