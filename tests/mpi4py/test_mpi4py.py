"""mpi4py's own test suite over two hosts with two nodes each: the results must be as elsewhere.

Each rank is a node. The nodes of a host share a region, and the network connects the hosts, so each
test uses both transports. The tests run with the two MPI libraries that `make` installs. They are
the tests that need more than two ranks, without slow ones. `make check-mpi4py` adds the slow tests,
and the whole suite in one region; `make check-mpis` runs all tests with all libraries.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import suite as suite_module
from command_support import CHECKOUT
from suite import (
    LOST_DAEMON,
    MEMBERS_PER_RANK,
    Lists,
    fails_elsewhere,
    faults,
    fetch_suite,
    run_suite,
)

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.mpi.job import Job

MPIS = ("mpich", "openmpi")
HOSTS = 2
RANKS = 4
GUARD_SECONDS = 400
"""A job that takes longer hangs; it takes about a minute, and several on a busy machine."""

pytestmark = pytest.mark.timeout(2 * GUARD_SECONDS)


@pytest.fixture(scope="module")
def suite() -> Path:
    return fetch_suite(CHECKOUT / "build" / "mpi4py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=RANKS) as opened:
        yield opened


@pytest.mark.parametrize("mpi", MPIS)
def test_suite(mpi: str, cluster: EphemeralCluster, suite: Path, tmp_path: Path) -> None:
    lists = Lists.load(mpi, RANKS)
    job = {
        "ranks": RANKS,
        "hosts": HOSTS,
        "mpi": mpi,
        "members": MEMBERS_PER_RANK * RANKS,
        "environment": lists.environment,
        "without": [*lists.excluded, *lists.slow],
        "only": lists.four_ranks,
    }
    results = run_suite(job, cluster, suite, tmp_path / "results", GUARD_SECONDS)
    assert not faults(results, lists, whole=False)
    assert results.facts["provider"]
    print(f"{mpi}: {Counter(results.outcome.values())}")


@pytest.mark.parametrize(("lost", "whole"), [(1, True), (2, False)])
def test_a_launcher_that_lost_its_daemon_is_run_once_more(
    lost: int,
    whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The launcher is a fake."""
    runs = []

    def launch(job: Job, *_: object, **__: object) -> subprocess.CompletedProcess[str]:
        runs.append(job)
        ended = len(runs) > lost
        last = {"end": 1} if ended else {"test": "t"}
        (Path(job.program[3]) / "rank-0.jsonl").write_text(json.dumps(last) + "\n")
        said = "" if ended else LOST_DAEMON
        return subprocess.CompletedProcess(job.program, 0, "", said)

    monkeypatch.setattr(suite_module, "launch", launch)
    job = {"ranks": 1, "mpi": "openmpi"}
    with EphemeralCluster(nodes=1) as opened:
        results = run_suite(job, opened, tmp_path, tmp_path / "results", GUARD_SECONDS)
    assert len(runs) == 2
    assert (results.trouble == "") == whole
    assert "run again" in capsys.readouterr().err


@pytest.mark.parametrize("mpi", MPIS)
def test_known_failures_are_not_ours(mpi: str, suite: Path, tmp_path: Path) -> None:
    """Each fails in the same way if no message goes through the region."""
    for number, entry in enumerate(Lists.load(mpi).failures):
        assert not fails_elsewhere(entry, mpi, suite, tmp_path / str(number), GUARD_SECONDS)
