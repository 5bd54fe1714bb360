"""The wall-clock time to create a virtual cluster by the commands that a user types."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.labs.bench.bars import CLUSTER_PLAN, CLUSTER_UP, FIRST_MESSAGE, Bar, Group
from vicinal.labs.bench.compare import make_row, side_entry
from vicinal.labs.bench.sides import Setup
from vicinal.labs.programs import mpi_program
from vicinal.labs.statistics.describe import median_estimate
from vicinal.mpi.environment import Mpi

_TIMEOUT_SECONDS = 600.0
"""A guard against hangs. Emulated guests may take minutes on a busy machine."""
_NAME = "vicinal-bench"


def is_setup(bar: Bar) -> bool:
    """Whether measure_setup() measures this bar."""
    return bar.metric in _MEASURES


def measure_setup(bar: Bar, group: Group, trials: int) -> dict[str, Any]:
    """The row of such a bar. The cluster is created and removed `trials` times.

    Raises VicinalError if a command fails, after removing what was created.
    """
    setup = group.sides[bar.ours]
    assert isinstance(setup, Setup)
    seconds = []
    notes: list[str] = []
    for _ in range(trials):
        with _cluster_file(setup) as cluster:
            took, notes = _MEASURES[bar.metric](cluster)
            seconds.append(took)
    median = median_estimate(seconds)
    side = side_entry(bar.ours, setup, "s", [[took] for took in seconds])
    row = make_row(bar, median, unit="s", trials=trials, ours=side, theirs=None)
    row["notes"] += notes
    return row | {"group": group.name}


class _Cluster:
    """A cluster file in a directory of its own, and the commands for its cluster."""

    def __init__(self, file: Path, state: Path) -> None:
        self.file = str(file)
        self._environment = dict(os.environ) | {"XDG_STATE_HOME": str(state)}

    def run(self, *arguments: str, good: Sequence[int] = (0,)) -> str:
        """The output of a `vicinal` command. Raises VicinalError if it fails or does not end."""
        command = [sys.executable, "-m", "vicinal", *arguments]
        shown = f"`vicinal {arguments[0]}`"
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                cwd="/",  # which every node sees
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise VicinalError(
                f"{shown} did not end within {_TIMEOUT_SECONDS:.0f} s", "free the machine"
            ) from error
        if done.returncode not in good:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            raise VicinalError(f"{shown} failed ({lines[-1].strip()})", "run it by hand")
        return done.stdout

    @property
    def notes(self) -> list[str]:
        """The features that the nodes lacked, and the accelerator of virtual machines."""
        status = json.loads(self.run("status", "--json", _NAME))
        notes = [f"without {limitation}" for limitation in status["limitations"]]
        if status["accelerator"] is not None:
            notes.append(f"guests by {Accelerator(status['accelerator']).description}")
        return notes


@contextmanager
def _cluster_file(setup: Setup) -> Iterator[_Cluster]:
    """A cluster that does not exist yet. On exit all that was created of it is removed."""
    with tempfile.TemporaryDirectory(prefix="vicinal-bench-") as directory:
        file = Path(directory) / "cluster.yaml"
        # JSON is YAML.
        file.write_text(json.dumps({"name": _NAME, **setup.description}))
        cluster = _Cluster(file, Path(directory) / "state")
        try:
            yield cluster
        finally:
            cluster.run("down", "--quiet", _NAME)


def _plan(cluster: _Cluster) -> tuple[float, list[str]]:
    changes = 2  # the exit status where something would change
    return _timed(lambda: cluster.run("plan", cluster.file, good=(changes,))), []


def _up(cluster: _Cluster) -> tuple[float, list[str]]:
    seconds = _timed(lambda: cluster.run("up", "--quiet", cluster.file))
    return seconds, cluster.notes


def _first_message(cluster: _Cluster) -> tuple[float, list[str]]:
    """The time from `up` to the end of a job that sends 8-byte messages between the nodes."""
    program = mpi_program(Mpi.MPICH, "latency")
    least = ["--sizes", "8", "--repetitions", "1", "--seconds", "0.001"]
    job = ["run", "--cluster", _NAME, "-n", "2", "--mpi", "mpich", str(program), *least]

    def both() -> None:
        cluster.run("up", "--quiet", cluster.file)
        cluster.run(*job)

    seconds = _timed(both)
    return seconds, cluster.notes


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


_MEASURES: Mapping[str, Callable[[_Cluster], tuple[float, list[str]]]] = {
    CLUSTER_PLAN: _plan,
    CLUSTER_UP: _up,
    FIRST_MESSAGE: _first_message,
}
