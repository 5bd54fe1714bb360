"""HPCC: all its tests, judged by HPCC's own checks of its results."""

from pathlib import Path

import pytest
from answers import hpcc_complete, hpcc_fft, hpcc_hpl, hpcc_ptrans, hpcc_random_access
from software_support import Record, check_region, check_success, vicinal_run, write_input

LEAST_BYTES = 100_000_000
"""HPCC sends more than a hundred messages of 2 MB to measure the bandwidth of rings."""


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 2), (4, 4), (4, 2)])
def test_hpcc(ranks: int, nodes: int, directory: Path, record: Record) -> None:
    write_input(directory, ranks)
    done = vicinal_run(
        ["/usr/bin/hpcc"], ranks=ranks, nodes=nodes, directory=directory, name="hpcc"
    )
    check_success(done)
    output = (directory / "hpccoutf.txt").read_text()
    hpcc_complete(output, ranks)
    residuals = f"HPL residual {hpcc_hpl(output):.2g}, PTRANS residual {hpcc_ptrans(output):.2g}"
    error, words = hpcc_fft(output), hpcc_random_access(output)
    check_region(done, ranks=ranks, nodes=nodes, least_bytes=LEAST_BYTES)
    record(done, f"{residuals}, FFT error {error:.1e}, RandomAccess 0 of {words:,} words wrong")
