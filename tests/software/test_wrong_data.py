"""Whether the checks can fail: programs that get wrong data must not pass any of them."""

from pathlib import Path

import pytest
from answers import (
    WrongAnswerError,
    coarray,
    fft_errors,
    hpcc_complete,
    hpcc_fft,
    hpcc_hpl,
    hpcc_ptrans,
    hpcc_random_access,
    lammps_same,
    lammps_thermo,
    netpipe_integrity,
)
from software_support import ONE_SIDED, Finished, check_success, vicinal_run, write_input
from test_fftw import ALLOWED
from test_lammps import LAST_STEP, run_deck


def spoiled(
    program: list[object], built: Path, directory: Path, name: str, *, every: int, least: int
) -> Finished:
    """Run a program on two nodes; every `every`-th message of one rank is wrong."""
    return vicinal_run(
        program,
        ranks=2,
        directory=directory,
        name=name,
        preload=built / "wrong_data.so",
        environment={
            "WRONG_DATA_EVERY": str(every),
            "WRONG_DATA_LEAST": str(least),
            **ONE_SIDED["rdma"],
        },
    )


def test_netpipe(built: Path, directory: Path) -> None:
    program: list[object] = ["/usr/bin/NPopenmpi", "-i", "-u", 20000, "-n", 7]
    done = spoiled(program, built, directory, "netpipe", every=20, least=64)
    assert done.returncode != 0
    with pytest.raises(WrongAnswerError, match=r"Integrity|ended at"):
        netpipe_integrity(done.stderr, 20000)


def test_hpcc(built: Path, directory: Path) -> None:
    write_input(directory, 2)
    spoiled(["/usr/bin/hpcc"], built, directory, "hpcc", every=1, least=1024)
    output = (directory / "hpccoutf.txt").read_text()
    with pytest.raises(WrongAnswerError, match="says that a test failed"):
        hpcc_complete(output, 2)
    for check in (hpcc_hpl, hpcc_ptrans, hpcc_fft, hpcc_random_access):
        with pytest.raises(WrongAnswerError):
            check(output)


@pytest.mark.parametrize("deck", LAST_STEP)
def test_lammps(deck: str, built: Path, directory: Path) -> None:
    right = run_deck(deck, directory, "right", 2, "region")
    program: list[object] = ["/usr/bin/lmp", "-in", f"{deck}.lammps"]
    wrong = spoiled(program, built, directory, "wrong", every=20, least=64)
    check_success(wrong)
    lines = lammps_thermo(right.stdout, LAST_STEP[deck])
    with pytest.raises(WrongAnswerError, match="differs"):
        lammps_same(lines, lammps_thermo(wrong.stdout, LAST_STEP[deck]))


def test_fftw(built: Path, directory: Path) -> None:
    program: list[object] = [built / "fft3d", 48, 40, 36]
    done = spoiled(program, built, directory, "fft3d", every=1, least=64)
    check_success(done)
    with pytest.raises(WrongAnswerError, match="relative error"):
        fft_errors(done.stdout, 2, ALLOWED)


def test_coarray(built: Path, directory: Path) -> None:
    done = spoiled([built / "coarray"], built, directory, "coarray", every=10, least=64)
    check_success(done)
    with pytest.raises(WrongAnswerError, match=r"put: .* are wrong"):
        coarray(done.stdout)
