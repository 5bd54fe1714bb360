"""OpenCoarrays' own tests, as Debian installs them, with a node for each image.

The list leaves out tests of failed images, which Debian's Open MPI does not support; tests that
need other numbers of images; and most tests of a kind that has many. The list is fixed, so a test
that disappears from the package is noticed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from answers import opencoarrays
from software_support import (
    GUARD_SECONDS,
    MPI,
    ONE_SIDED,
    Finished,
    Record,
    check_region,
    check_success,
)

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.job import Job

IMAGES = 4

TESTS = (
    *("get_self", "get_static_array", "get_with_offset_1d", "get_with_vector_index"),
    *("strided_get", "strided_sendget", "whole_get_array", "send_with_vector_index"),
    *("send_convert_nums", "send_convert_char_array", "alloc_comp_get_convert_nums"),
    *("register", "register_alloc_vector", "allocate_as_barrier", "async_comp_alloc"),
    *("asynchronous_hello_world", "coarray_burgers_pde", "atomics"),
    *("allocatable_p2p_event_post", "static_event_post_issue_293"),
    *("co_broadcast_test", "co_reduce_test", "co_sum_test", "co_max_test"),
    *("syncall", "syncimages", "syncimages2", "teams_coarray_sendget"),
)


@pytest.fixture(scope="module")
def installed() -> Path:
    found = sorted(Path("/usr/lib").glob("*/open-coarrays/openmpi/bin/OpenCoarrays-*-tests"))
    assert found, "the tests are not where Debian installs them: run `scripts/setup software`"
    return found[-1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=IMAGES) as opened:
        yield opened


@pytest.mark.parametrize("component", ["pt2pt"])
@pytest.mark.parametrize("test", TESTS)
def test_opencoarrays(
    test: str,
    component: str,
    installed: Path,
    cluster: EphemeralCluster,
    directory: Path,
    record: Record,
) -> None:
    job = Job(
        [str(installed / test)],
        ranks=IMAGES,
        mpi=MPI,
        environment=ONE_SIDED[component],
        directory=directory,
    )
    ended = launch(job, cluster, timeout=GUARD_SECONDS)
    done = Finished(ended.returncode, ended.stdout, ended.stderr, ended.seconds, ended.region)
    (directory / "test.out").write_text(f"{done.stdout}\n--- standard error\n{done.stderr}")
    check_success(done)
    opencoarrays(done.stdout + done.stderr)
    check_region(done, ranks=IMAGES, nodes=IMAGES, least_bytes=1)
    record(done, f"passed, by osc {component}")
