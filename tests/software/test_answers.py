"""Functions that judge answers, tested on outputs with one fault: each must find its fault."""

import pytest
from answers import (
    COARRAY_PARTS,
    HPCC_SECTIONS,
    WrongAnswerError,
    coarray,
    fft_errors,
    hpcc_complete,
    hpcc_fft,
    hpcc_hpl,
    hpcc_ptrans,
    hpcc_random_access,
    lammps_difference,
    lammps_same,
    lammps_thermo,
    netpipe_integrity,
    netpipe_times,
    opencoarrays,
)

NETPIPE = """0: node0
  0:       5 bytes     10 times -->  Integrity check passed
  1:      64 bytes     10 times -->  Integrity check passed
  2:     100 bytes     10 times -->  Integrity check passed
"""

TIMES = """Now starting the main loop
  0:       1 bytes    200 times -->      7.63 Mbps in       1.00 usec
  1:     100 bytes    200 times -->    381.47 Mbps in       2.00 usec
"""

HPCC = (
    """Found 0 errors in 1024 locations (passed).
Found 0 errors in 512 locations (passed).
Node(s) with error 0
Found 0 errors in 1024 locations (passed).
Found 0 errors in 512 locations (passed).
WALL   500   500  80  80   1   2     0.00 PASSED    0.476  0.00
CPU    500   500  80  80   1   2     0.00 PASSED    2.006  0.01
||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0072510 ...... PASSED
"""
    + "".join(f"End of {section} section.\n" for section in HPCC_SECTIONS)
    + """Success=1
CommWorldProcs=2
PTRANS_residual=0.01
MPIRandomAccess_N=1024
MPIRandomAccess_Errors=0
MPIRandomAccess_LCG_N=1024
MPIRandomAccess_LCG_Errors=0
MPIFFT_N=65536
MPIFFT_maxErr=1.3e-15
End of HPC Challenge tests.
"""
)

LAMMPS = """LAMMPS (29 Sep 2021)
Step Temp PotEng
       0   2.500000000000000e+00 -6.364746502050934e+00
      10   2.241193985653573e+00 -5.959838025572891e+00
Loop time of 0.2 on 1 procs for 10 steps
Total wall time: 0:00:00
"""

FFT = """complex 8 x 8 x 8 on 2 ranks: forward 0.000e+00 back 3.942e-16
transposed 8 x 8 x 8 on 2 ranks: forward 1.000e-16 back 3.949e-16
real 8 x 8 x 8 on 2 ranks: forward 0.000e+00 back 3.905e-16
"""

COARRAY = "".join(f"{part} elements 10 wrong 0 agreed T\n" for part in COARRAY_PARTS) + "done\n"


def changed(output: str, old: str, new: str) -> str:
    """An output with one replacement; the old text must occur once."""
    assert old in output
    return output.replace(old, new, 1)


def test_netpipe_integrity() -> None:
    assert netpipe_integrity(NETPIPE, 128) == 1690
    between = "-->  Using synchronous sends\n Integrity check passed"
    assert (
        netpipe_integrity(NETPIPE.replace("-->  Integrity check passed", between, 1), 128) == 1690
    )
    failed = "Integrity check failed: Expecting 3 but received 4"
    for old, new, reason in (
        ("Integrity check passed", failed, "5 bytes: Integrity check failed"),
        ("  1:      64 bytes", "", "left out test 1"),
        ("  2:     100 bytes     10 times -->  Integrity check passed\n", "", "ended at 64"),
        ("  0:       5 bytes", "  0:      50 bytes", "began at 50"),
    ):
        with pytest.raises(WrongAnswerError, match=reason):
            netpipe_integrity(changed(NETPIPE, old, new), 200)
    with pytest.raises(WrongAnswerError, match="no size"):
        netpipe_integrity("", 128)


def test_netpipe_times() -> None:
    times = netpipe_times(TIMES, 128)
    assert (times.latency, times.bandwidth, times.bytes) == (1.0, 381.47, 20200)
    for old, new, reason in (
        ("381.47 Mbps", "481.47 Mbps", "do not agree"),
        ("7.63 Mbps in       1.00", "0.00 Mbps in       0.00", "1 bytes"),
        ("7.63 Mbps in       1.00", "nan Mbps in       1.00", "1 bytes"),
        ("  1:     100 bytes", "", "ended at 1 bytes"),
    ):
        with pytest.raises(WrongAnswerError, match=reason):
            netpipe_times(changed(TIMES, old, new), 128)
    with pytest.raises(WrongAnswerError, match="measured nothing"):
        netpipe_times("", 128)


def test_hpcc() -> None:
    hpcc_complete(HPCC, 2)
    assert hpcc_hpl(HPCC) == 0.007251
    assert hpcc_ptrans(HPCC) == 0.01
    assert hpcc_fft(HPCC) == 1.3e-15
    assert hpcc_random_access(HPCC) == 2048


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (hpcc_hpl, "...... PASSED", "...... FAILED"),
        (hpcc_hpl, "0.0072510 ......", "188699180.5 ......"),
        (hpcc_hpl, "0.0072510 ......", "nan ......"),
        (hpcc_hpl, "||Ax-b||", ""),
        (hpcc_ptrans, "0.00 PASSED", "0.00 FAILED"),
        (hpcc_ptrans, "0.476  0.00", "0.476  70399704613.56"),
        (hpcc_ptrans, "PTRANS_residual=0.01", "PTRANS_residual=16"),
        (hpcc_ptrans, "PTRANS_residual=0.01", "PTRANS_residual=nan"),
        (hpcc_fft, "maxErr=1.3e-15", "maxErr=1.3e-12"),
        (hpcc_fft, "maxErr=1.3e-15", "maxErr=-1"),
        (hpcc_fft, "MPIFFT_maxErr", "other"),
        (hpcc_random_access, "MPIRandomAccess_Errors=0", "MPIRandomAccess_Errors=1"),
        (hpcc_random_access, "LCG_Errors=0", "LCG_Errors=1"),
        (hpcc_random_access, "MPIRandomAccess_N=1024", "MPIRandomAccess_N=0"),
        (hpcc_random_access, "locations (passed)", "locations (failed)"),
        (hpcc_random_access, "Found 0 errors", ""),
    ],
)
def test_hpcc_wrong(check: object, old: str, new: str) -> None:
    assert callable(check)
    with pytest.raises(WrongAnswerError):
        check(changed(HPCC, old, new))


def test_hpcc_incomplete() -> None:
    for old, new, reason in (
        ("End of HPL section.\n", "", "come to HPL"),
        ("End of HPC Challenge tests.\n", "", "its end"),
        ("Success=1", "Success=0", "a test failed"),
        ("Success=1\n", "", "nothing of Success"),
        ("CommWorldProcs=2", "CommWorldProcs=1", "on 1 ranks"),
        ("with error 0", "with error 1", "nodes with error"),
    ):
        with pytest.raises(WrongAnswerError, match=reason):
            hpcc_complete(changed(HPCC, old, new), 2)


def test_lammps() -> None:
    lines = lammps_thermo(LAMMPS, 10)
    assert len(lines) == 3
    lammps_same(lines, lammps_thermo(LAMMPS.replace("of 0.2 on", "of 0.3 on"), 10))
    other = lammps_thermo(changed(LAMMPS, "2.241193985653573", "2.241193985653574"), 10)
    assert 0 < lammps_difference(lines, other) < 1e-14
    with pytest.raises(WrongAnswerError, match="differs"):
        lammps_same(lines, other)
    with pytest.raises(WrongAnswerError, match="3 and 2 lines"):
        lammps_same(lines, lines[:2])
    with pytest.raises(WrongAnswerError, match="columns"):
        lammps_difference(lines, [line.replace("Temp", "Press") for line in lines])
    for old, new, reason in (
        ("Total wall time", "Total", "its end"),
        ("2.241193985653573e+00", "nan", "no number"),
        ("LAMMPS", "ERROR: Lost atoms", "an error"),
        ("      10 ", "       9 ", "ended at 9"),
        ("Step ", "", "no thermodynamic"),
    ):
        with pytest.raises(WrongAnswerError, match=reason):
            lammps_thermo(changed(LAMMPS, old, new), 10)


def test_fft() -> None:
    assert fft_errors(FFT, 2, 1e-12) == 3.949e-16
    for old, new in (
        ("3.942e-16", "3.942e-11"),
        ("1.000e-16", "nan"),
        ("complex", "other"),
        ("real 8", ""),
        ("on 2 ranks", "on 1 ranks"),
    ):
        with pytest.raises(WrongAnswerError):
            fft_errors(changed(FFT, old, new), 2, 1e-12)


def test_coarray() -> None:
    assert coarray(COARRAY) == 10 * len(COARRAY_PARTS)
    for old, new in (
        ("swap elements 10 wrong 0", "swap elements 10 wrong 1"),
        ("swap elements 10", "swap elements 0"),
        ("agreed T", "agreed F"),
        ("lock elements", "block"),
        ("done", ""),
    ):
        with pytest.raises(WrongAnswerError):
            coarray(changed(COARRAY, old, new))


def test_opencoarrays() -> None:
    opencoarrays("1 of 2\n Test passed.\n")
    for output in (
        "",
        "Test failed\n",
        " Test passed.\n Test failed!\n",
        "ERROR STOP\nTest passed.",
    ):
        with pytest.raises(WrongAnswerError):
            opencoarrays(output)
