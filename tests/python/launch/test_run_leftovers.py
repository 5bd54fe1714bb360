"""`vicinal run` leaves nothing behind, however it ends. The tests use a host of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_support import CHECKOUT
from launch_support import (
    GUARD_SECONDS,
    MPI_DIAGONAL,
    MPIS,
    ONE_MPI,
    REGION,
    check_reports,
    package_path,
    square,
)

from vicinal.mpi.environment import mpi_prefix


def observe(
    program: Path, options: list[str], arguments: list[str], number: int | None = None
) -> dict[str, Any]:
    command = [sys.executable, "-m", "vicinal", "run", *options, str(program), *arguments]
    keep = [program.parent, Path(sys.prefix), CHECKOUT, *(mpi_prefix(mpi) for mpi in MPIS)]
    keep += [Path(path) for path in package_path().split(os.pathsep) if Path(path).is_dir()]
    request = {"command": command, "keep": [str(path) for path in keep], "signal": number}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("private_host.py")), json.dumps(request)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=GUARD_SECONDS,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["before"]["processes"] == []
    assert result["before"]["files"] == []
    return result


def check_clean(result: dict[str, Any]) -> None:
    assert result["after"] == result["before"], result["output"]


def test_the_check_itself_finds_what_is_left(tmp_path: Path) -> None:
    script = tmp_path / "leave"
    script.write_text("touch /dev/shm/left /tmp/left; ipcmk -M 4096; ip link set lo name left")
    request = {"command": ["sh", str(script)], "keep": [str(tmp_path)], "signal": None}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("private_host.py")), json.dumps(request)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    result = json.loads(done.stdout)
    assert result["after"]["files"] == ["/dev/shm/left", "/tmp/left"]
    assert len(result["after"]["sysv"]) == 1
    assert "left" in result["after"]["interfaces"]


@pytest.mark.parametrize(("mpi", "path"), square(MPIS, ["network", REGION], MPI_DIAGONAL))
def test_nothing_is_left_after_a_job(programs: dict[str, Path], mpi: str, path: str) -> None:
    result = observe(programs[mpi], ["-n", "2", "--path", path], ["report"])
    assert result["status"] == 0, result["output"]
    check_reports(result["output"], ["node0", "node1"])
    check_clean(result)


@pytest.mark.parametrize(
    ("mpi", "number", "path"),
    square(
        MPIS,
        [
            pytest.param(signal.SIGINT, "network"),
            pytest.param(signal.SIGTERM, *REGION.values, marks=REGION.marks),
        ],
        [("mpich", signal.SIGINT, "network"), ("openmpi", signal.SIGTERM, "region")],
    ),
)
def test_nothing_is_left_after_an_interrupted_job(
    programs: dict[str, Path], mpi: str, number: signal.Signals, path: str
) -> None:
    result = observe(programs[mpi], ["-n", "2", "--path", path], ["wait"], number)
    assert result["status"] == 128 + number
    assert "Traceback" not in result["output"]
    check_clean(result)


@pytest.mark.parametrize(
    ("mpi", "path"),
    square(MPIS, ["network", REGION], [("mpich", "network"), ("openmpi", "region")]),
)
def test_nothing_is_left_after_the_manager_was_killed(
    programs: dict[str, Path], mpi: str, path: str
) -> None:
    options = ["-n", "3", "--nodes", "2", "--path", path]
    result = observe(programs[mpi], options, ["wait"], signal.SIGKILL)
    assert result["status"] == -signal.SIGKILL
    check_clean(result)


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_nothing_is_left_after_a_failed_job(programs: dict[str, Path], mpi: str) -> None:
    result = observe(programs[mpi], ["-n", "2", "--path", "network"], ["exit", "3"])
    assert result["status"] == 3
    check_clean(result)


def test_nothing_is_left_after_the_time_is_up(programs: dict[str, Path]) -> None:
    options = ["-n", "2", "--path", "network", "--timeout", "1"]
    result = observe(programs["mpich"], options, ["late"])
    assert result["status"] == 1
    assert "did not end within 1 s" in result["output"]
    check_clean(result)
