"""mpi4py's own test suite, each rank a node, over the region: it must say what it says elsewhere.

With the two MPI libraries that `make` installs, and without what sends nothing; `make
check-mpis` runs all of it with all of them.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from vicinal.cluster.native import NativeCluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mpi4py"))

from suite import MEMBERS_PER_RANK, Lists, fails_elsewhere, faults, fetch_suite, run_suite

MPIS = ("mpich", "openmpi")
GUARD_SECONDS = 400
"""After this a job hangs; it takes about a minute, and several on a busy machine."""

pytestmark = pytest.mark.timeout(2 * GUARD_SECONDS)


@pytest.fixture(scope="module")
def suite(checkout: Path) -> Path:
    return fetch_suite(checkout / "build" / "mpi4py")


@pytest.fixture(scope="module", params=[2, 4])
def cluster(request: pytest.FixtureRequest) -> Iterator[NativeCluster]:
    with NativeCluster(nodes=request.param) as opened:
        yield opened


@pytest.mark.parametrize("mpi", MPIS)
def test_suite(mpi: str, cluster: NativeCluster, suite: Path, tmp_path: Path) -> None:
    ranks = len(cluster.nodes)
    lists = Lists.load(mpi, ranks)
    job = {
        "ranks": ranks,
        "mpi": mpi,
        "members": MEMBERS_PER_RANK * ranks,
        "environment": lists.environment,
    }
    job["without"] = [*lists.excluded, *lists.selection["left-out"]]
    if ranks > 2:
        job["only"] = lists.four_ranks
    results = run_suite(job, cluster, suite, tmp_path / "results", GUARD_SECONDS)
    assert not faults(results, lists, whole=ranks == 2)
    assert results.facts["provider"]
    print(f"{mpi}, {ranks} ranks: {Counter(results.outcome.values())}")


@pytest.mark.parametrize("mpi", MPIS)
def test_known_failures_are_not_ours(mpi: str, suite: Path, tmp_path: Path) -> None:
    """Each fails in the same way where no message goes through the region."""
    for number, entry in enumerate(Lists.load(mpi).failures):
        assert not fails_elsewhere(entry, mpi, suite, tmp_path / str(number), GUARD_SECONDS)
