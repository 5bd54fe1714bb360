"""Coarray Fortran with OpenCoarrays: one-sided operations as a PGAS program uses them."""

from pathlib import Path

import pytest
from answers import coarray
from software_support import ONE_SIDED, Record, check_region, check_success, vicinal_run

ALLOCATED_BYTES = 8 * 40_000 * (1 + 2 + 3 + 4 + 5 + 6)
"""Bytes that each image writes to its neighbour in one of the program's many parts."""


@pytest.mark.parametrize("component", ONE_SIDED)
@pytest.mark.parametrize("images", [2, 4])
def test_coarray(images: int, component: str, built: Path, directory: Path, record: Record) -> None:
    done = vicinal_run(
        [built / "coarray"],
        ranks=images,
        directory=directory,
        name="coarray",
        environment=ONE_SIDED[component],
    )
    check_success(done)
    elements = coarray(done.stdout)
    check_region(done, ranks=images, nodes=images, least_bytes=images * ALLOCATED_BYTES)
    record(done, f"{elements:,} elements right, by osc {component}")
