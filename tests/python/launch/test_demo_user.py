"""`vicinal demo` for a user without privileges, in a checkout that belongs to another user."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import error_line
from launch_support import GUARD_SECONDS, NOBODY, package_path, unprivileged_python

from vicinal.base.errors import VicinalError
from vicinal.labs import programs
from vicinal.labs.bench.metric import DEMO_METRICS, FACTS
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

SHORT = ("--sizes", "8", "--trials", "1", "--seconds", "0.0001")

NO_NETWORKS = ("unshare", "--user", "--map-root-user", "--", "/bin/sh", "-c")
NO_NETWORKS_TEXT = 'echo 0 >/proc/sys/user/max_net_namespaces && exec "$0" "$@"'
"""Run a command where the kernel grants this user everything except new network namespaces."""
OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--net", "--", "/bin/sh", "-c")
OWN_NETWORK_TEXT = """
ip link set lo up && ip link add host0 type veth peer name host1 &&
ip link set host1 up && ip link set host0 up && ip address add 10.9.0.1/24 dev host0 &&
exec "$0" "$@"
"""
"""Run a command in a network with one interface that is up, whatever the machine has. Daemons of
Open MPI 5 never reach each other over a loopback interface.
"""


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory that the user without privileges owns and can reach."""
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
        yield Path(directory)


def demo(
    theirs: Path, *arguments: object, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    *become, python = unprivileged_python()
    return subprocess.run(
        [*become, *before, python, "-m", "vicinal", "demo", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": package_path(), "HOME": str(theirs), "COLUMNS": "200"},
        cwd=theirs,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )


def without_networks() -> tuple[str, ...]:
    """Words that start a command without networks. Skips the test where that is impossible."""
    before = (*OWN_NETWORK, OWN_NETWORK_TEXT, *NO_NETWORKS, NO_NETWORKS_TEXT)
    *become, _ = unprivileged_python()
    tried = subprocess.run(
        [*become, *before, "true"], capture_output=True, text=True, check=False, cwd="/"
    )
    if tried.returncode != 0:
        pytest.skip(f"networks cannot be forbidden here to try it: {tried.stderr.strip()}")
    return before


@pytest.mark.parametrize("networks", [True, False])
def test_an_ordinary_user_sees_it_and_what_it_did_without(theirs: Path, networks: bool) -> None:
    mpi = "mpich" if networks else "openmpi"
    before = () if networks else without_networks()
    for metric in DEMO_METRICS:
        mpi_program(Mpi(mpi), FACTS[metric].program)  # the user cannot make them
    done = demo(theirs, "--mpi", mpi, *SHORT, "--output", theirs / "demo", before=before)
    assert done.returncode == 0, done.stderr
    result = json.loads((theirs / "demo" / "result.json").read_text())
    assert {line["scenario"]["path"] for line in result["series"]} == {
        *("network", "region", "shared-memory")
    }
    for line in result["series"]:
        alone = line["scenario"]["path"] != "shared-memory"
        assert line["hosts"] == (["node0", "node1"] if alone else ["node0", "node0"])
    without = result["conditions"]["limitations"]
    said = [line for line in done.stdout.splitlines() if line.startswith("Done without ")]
    assert said == [f"Done without {limitation}." for limitation in without]
    host_network = [each for each in without if each.startswith("networks of their own")]
    assert len(host_network) == (0 if networks else 1), without


def test_results_that_cannot_be_written_are_refused_before_anything_is_measured(
    theirs: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("this checkout is the user's own: only root can try as another user")
    line = error_line(demo(theirs, *SHORT))
    assert "this user may not write to /" in line
    assert line.endswith("/build/demo: name another directory with --output")
    (theirs / "file").touch()
    line = error_line(demo(theirs, *SHORT, "--output", theirs / "file"))
    assert f"this user may not write to {theirs}/file" in line


@pytest.mark.parametrize("script", ["setup", "build release"])
def test_who_cannot_make_anything_here_is_told_what_works(checkout: Path, script: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("this checkout is the user's own: only root can try as another user")
    *become, _ = unprivileged_python()
    name, *arguments = script.split()
    done = subprocess.run(
        [*become, checkout / "scripts" / name, *arguments],
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"error: this user may not write to {checkout}/build: " in line
    assert "in a checkout of your own" in line


def test_programs_of_somebody_elses_are_used_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "checkout", lambda: tmp_path)
    source, made = tmp_path / "programs/latency.c", tmp_path / "build/programs/mpich/latency"
    for file in (source, made):
        file.parent.mkdir(parents=True)
        file.touch()
    rule = "build/programs/mpich/%: programs/%.c"
    (tmp_path / "Makefile").write_text(f"{rule}\n\tcp $< $@\n")
    monkeypatch.setattr(programs, "may_write", lambda directory: directory is None)
    assert mpi_program(Mpi.MPICH, "latency") == made
    assert list(made.parents[1].iterdir()) == [made.parent]  # and no lock file
    made.unlink()
    with pytest.raises(VicinalError, match=f"missing or out of date.*owner of {tmp_path} run"):
        mpi_program(Mpi.MPICH, "latency")
    monkeypatch.undo()
    monkeypatch.setattr(programs, "checkout", lambda: tmp_path)
    assert mpi_program(Mpi.MPICH, "latency").exists()
