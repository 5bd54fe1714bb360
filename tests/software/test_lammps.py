"""LAMMPS: the output for a melt and for chains must be the same as on one node."""

import shutil
from pathlib import Path

import pytest
from answers import lammps_difference, lammps_same, lammps_thermo
from software_support import HERE, Finished, Record, check_region, check_success, vicinal_run

from vicinal.labs.study.workloads.lammps import chains

LAST_STEP = {"melt": 120, "chain": 300}

LEAST_BYTES_A_RANK = 1_000_000
"""In each step, every rank sends the positions of some hundred of its atoms."""

SAME_TO = 1e-9
"""Other numbers of ranks add in another order, so runs drift apart: after 120 steps, the difference
was 1e-13."""


def run_deck(deck: str, directory: Path, name: str, ranks: int, path: str) -> Finished:
    shutil.copy(HERE / f"{deck}.lammps", directory)
    (directory / "chain.data").write_text(chains(sites=12, length=48))
    program = ["/usr/bin/lmp", "-in", f"{deck}.lammps", "-log", f"{name}.log"]
    done = vicinal_run(program, ranks=ranks, directory=directory, name=name, path=path)
    check_success(done)
    return done


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("deck", LAST_STEP)
def test_same_as_on_one_node(deck: str, ranks: int, directory: Path, record: Record) -> None:
    """With the same number of ranks, the text is the same, digit for digit."""
    between = run_deck(deck, directory, "region", ranks, "region")
    within = run_deck(deck, directory, "shared-memory", ranks, "shared-memory")
    lines = lammps_thermo(between.stdout, LAST_STEP[deck])
    lammps_same(lines, lammps_thermo(within.stdout, LAST_STEP[deck]))
    check_region(between, ranks=ranks, nodes=ranks, least_bytes=ranks * LEAST_BYTES_A_RANK)
    record(between, f"{len(lines) - 1} lines of thermodynamic output are the same")


@pytest.mark.parametrize("ranks", [2, 4])
def test_same_as_on_one_rank(ranks: int, directory: Path, record: Record) -> None:
    between = run_deck("melt", directory, "region", ranks, "region")
    alone = run_deck("melt", directory, "alone", 1, "shared-memory")
    difference = lammps_difference(
        lammps_thermo(between.stdout, LAST_STEP["melt"]),
        lammps_thermo(alone.stdout, LAST_STEP["melt"]),
    )
    assert difference <= SAME_TO
    check_region(between, ranks=ranks, nodes=ranks, least_bytes=ranks * LEAST_BYTES_A_RANK)
    record(between, f"relative difference to one rank {difference:.1e}")
