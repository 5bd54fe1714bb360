"""FFTW's transforms over MPI, compared with its transforms on one rank."""

from pathlib import Path

import pytest
from answers import fft_errors
from software_support import Record, check_region, check_success, vicinal_run

ALLOWED = 1e-12

COMPLEX_BYTES = 16
TRANSPOSITIONS = 2 + 2 + 1 + 1 + (2 + 2) // 2
"""Forward and back: in order, with the dimensions left exchanged, and real, which counts half."""

SIZES = [(48, 40, 36), (64, 64, 64), (21, 15, 10)]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_transforms(
    size: tuple[int, int, int], ranks: int, built: Path, directory: Path, record: Record
) -> None:
    done = vicinal_run([built / "fft3d", *size], ranks=ranks, directory=directory, name="fft3d")
    check_success(done)
    worst = fft_errors(done.stdout, ranks, ALLOWED)
    # A transposition moves elements that change their rank; slabs may differ in size.
    elements = size[0] * size[1] * size[2]
    moved = elements * COMPLEX_BYTES * TRANSPOSITIONS * (ranks - 1) // ranks
    check_region(done, ranks=ranks, nodes=ranks, least_bytes=moved * 9 // 10)
    record(done, f"largest relative error {worst:.1e}")
