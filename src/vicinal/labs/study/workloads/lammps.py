"""The driver of LAMMPS: a melt of Lennard-Jones atoms or of chains, and the parts of its time.

Newer versions print the rate in more units: tau/day and timesteps/s, and since 2022 also
atom-step/s after k, M or G. Known units must agree with the time; the others are skipped.
"""

import re

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import COMMUNICATION_TIME, TOTAL_TIME, Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import check_family, debian_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import (
    agree,
    count,
    number,
    refused,
    scale,
    single,
    whole_lines,
)
from vicinal.mpi.libraries import Mpi

OPERATIONS = ("lj", "chain")

# In reduced units: the mass of an atom and the two constants of its potential are 1. Both melts
# have their usual densities, 0.8442 and 0.85.
_LJ = """\
units           lj
atom_style      atomic
lattice         fcc 0.8442
region          box block 0 {cells} 0 {cells} 0 {cells}
create_box      1 box
create_atoms    1 box
mass            1 1.0
velocity        all create 1.44 87287 loop geom
pair_style      lj/cut 2.5
pair_coeff      1 1 1.0 1.0 2.5
neighbor        0.3 bin
neigh_modify    every 20 delay 0 check no
fix             move all nve
timestep        0.005
thermo          {steps}
run             {steps}
"""
_CHAIN = """\
units           lj
atom_style      bond
special_bonds   fene
read_data       chain.data
velocity        all create 1.0 1234 loop all
bond_style      fene
bond_coeff      1 30.0 1.5 1.0 1.0
pair_style      lj/cut 1.122462048309373
pair_coeff      1 1 1.0 1.0
pair_modify     shift yes
neighbor        0.4 bin
neigh_modify    every 2 delay 2 check yes
comm_modify     cutoff 2.0
fix             move all nve
fix             bath all langevin 1.0 1.0 2.0 90210
timestep        0.008
thermo          {steps}
run             {steps}
"""
_CHAIN_LENGTH = 64
"""Divides the number of beads of every cubic lattice whose edge is a multiple of 4."""
_PARTS = {
    "Pair": "pair forces",
    "Bond": "bond forces",
    "Kspace": "long-range forces",
    "Neigh": "neighbour lists",
    "Comm": COMMUNICATION_TIME,
    "Output": "output",
    "Modify": "integration",
    "Other": "other",
}
_LEAST_PARTS = {"Pair", "Comm", "Other"}
_NEAR = 0.02
"""Relative difference up to which the sum of all parts equals the loop's time, as printed."""
_LOOP = re.compile(r"Loop time of (\S+) on (\S+) procs? for (\S+) steps with (\S+) atoms")
_TITLE = re.compile(r"LAMMPS \((.{1,80})\)\s*")

DENSITY = 0.85
"""Beads per volume, in Lennard-Jones units."""


class Lammps:
    """The time of all steps and of its parts, as means over ranks, by the program."""

    name = "lammps"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program exists, and runs with this MPI library."""
        del workload
        try:
            check_family(debian_program(tools, "lammps", "lmp", "lammps"), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """Start the program with its input file, and with the initial state of the chains."""
        del mpi
        options = Options(workload, ("steps", "cells"))
        operation = options.operation(OPERATIONS)
        options.no_sizes()
        ranks = options.ranks(1)
        steps = options.number("steps", 100, most=1_000_000)
        files: dict[str, str]
        if operation == "lj":
            cells = options.number("cells", 20, most=400)
            files = {"lj.lammps": _LJ.format(steps=steps, cells=cells)}
        else:
            cells = options.number("cells", 24, least=4, most=64)
            if cells % 4:
                raise options.error(f"has cells: {cells}", "write a multiple of 4 for chains")
            files = {
                "chain.lammps": _CHAIN.format(steps=steps),
                "chain.data": chains(cells, _CHAIN_LENGTH),
            }
        program = str(debian_program(tools, "lammps", "lmp", "lammps"))
        arguments = ["-in", f"{operation}.lammps", "-log", "none"]
        return Program(
            [program, *arguments], ranks, variables={"OMP_NUM_THREADS": "1"}, files=files
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Read the time of the loop and the table of its parts."""
        lines = whole_lines(stdout)
        if any(line.startswith("ERROR") for line in lines):
            raise refused("LAMMPS", "it reports an error")
        if not any(line.startswith("Total wall time:") for line in lines):
            raise refused("LAMMPS", "it did not finish")
        loop = single("LAMMPS", "its time", [e for e in lines if e.startswith("Loop time of ")])
        words = _LOOP.match(loop)
        if words is None:
            raise refused(
                "LAMMPS",
                "its time has an unknown form",
                line=loop,
                expected="'Loop time of SECONDS on RANKS procs for STEPS steps with ATOMS atoms'",
            )
        if count("LAMMPS", words[2], line=loop) != workload.ranks:
            raise refused("LAMMPS", f"it did not run on {workload.ranks} ranks", line=loop)
        seconds = number("LAMMPS", words[1], line=loop)
        steps, atoms = count("LAMMPS", words[3], line=loop), count("LAMMPS", words[4], line=loop)
        if steps != Options(workload, ("steps", "cells")).number("steps", 100):
            raise refused("LAMMPS", f"it ran {steps} steps instead of the requested number")
        _check_rate(lines, steps / seconds, atoms)
        parts = _parts(lines)
        agree("LAMMPS", "its time and the sum of the parts", sum(parts.values()), seconds, _NEAR)
        figures = [Figure(TOTAL_TIME, seconds, "s")]
        figures += [Figure(_PARTS[name], value, "s") for name, value in parts.items()]
        title = next((found for line in lines if (found := _TITLE.match(line))), None)
        facts: dict[str, object] = {
            "program": "LAMMPS" if title is None else title[0].rstrip(),
            "clock": "MPI_Wtime",
            "atoms": atoms,
            "steps": steps,
        }
        if title is not None:
            facts["version"] = title[1]
        return Measured(figures=figures, facts=facts)


def _check_rate(lines: list[str], expected: float, atoms: int) -> None:
    """Compare the printed rate, which has three decimals, with `expected`, in steps a second.

    Raises VicinalError if they disagree, or if no rate has a known unit.
    """
    line = single("LAMMPS", "its rate", [e for e in lines if e.startswith("Performance: ")])
    found = False
    for part in line.removeprefix("Performance: ").split(", "):
        value, _, unit = part.strip().partition(" ")
        of_steps, of_atoms = scale(unit, "timesteps/s"), scale(unit, "atom-step/s")
        if of_steps is None and of_atoms is None:
            continue
        found = True
        # In the printed unit, because the last digit limits the precision.
        wanted = expected * atoms / of_atoms if of_atoms else expected / (of_steps or 1.0)
        rate = number("LAMMPS", value, zero=True, line=line)
        if abs(rate - wanted) > 0.001 + wanted * 1e-4:
            raise refused(
                "LAMMPS", f"its time and rate do not agree ({wanted:g} and {rate:g} {unit})"
            )
    if not found:
        raise refused(
            "LAMMPS",
            "its rate is not in timesteps a second",
            line=line,
            expected="a rate in timesteps/s, or in atom-step/s after nothing, k, M or G",
        )


def _parts(lines: list[str]) -> dict[str, float]:
    """Seconds of each part, as means over ranks, by the table's names."""
    if "MPI task timing breakdown:" not in lines:
        raise refused("LAMMPS", "it prints no parts of its time")
    table = lines[lines.index("MPI task timing breakdown:") + 1 :]
    head = [cell.strip() for cell in table[0].split("|")] if table else []
    if head[:1] != ["Section"] or "avg time" not in head:
        raise refused(
            "LAMMPS",
            "the table of its times has no head",
            line=table[0] if table else "",
            expected="columns Section and avg time",
        )
    found: dict[str, float] = {}
    for line in table[2:]:
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(head):
            break
        if cells[0] not in _PARTS or cells[0] in found:
            raise refused(
                "LAMMPS",
                f"its times have an unknown part {cells[0]!r}",
                line=line,
                expected=f"one of {', '.join(_PARTS)}, each once",
            )
        value = cells[head.index("avg time")]
        found[cells[0]] = number("LAMMPS", value, zero=True, line=line)
    if not found.keys() >= _LEAST_PARTS:
        raise refused("LAMMPS", "the table of its times is incomplete")
    return found


def chains(sites: int, length: int) -> str:
    """Chains of `length` beads that wind through a cubic lattice of sites^3 beads.

    The walk goes from each site to a neighbour, and is cut into chains. The number of beads is a
    multiple of `length`.
    """
    edge = (sites**3 / DENSITY) ** (1 / 3)
    walk: list[tuple[int, int, int]] = []
    for x in range(sites):
        for y in range(sites) if x % 2 == 0 else reversed(range(sites)):
            # Each row runs in the opposite direction of the previous row.
            forth = len(walk) // sites % 2 == 0
            along = range(sites) if forth else reversed(range(sites))
            walk += [(x, y, z) for z in along]
    bonds = [n for n in range(1, len(walk)) if n % length != 0]
    lines = ["bead-spring chains", ""]
    lines += [f"{len(walk)} atoms", f"{len(bonds)} bonds", "1 atom types", "1 bond types", ""]
    lines += [f"0 {edge:.12f} {axis}lo {axis}hi" for axis in "xyz"]
    lines += ["", "Masses", "", "1 1.0", "", "Atoms # bond", ""]
    for bead, site in enumerate(walk):
        coordinates = " ".join(f"{(step + 0.5) * edge / sites:.12f}" for step in site)
        lines.append(f"{bead + 1} {bead // length + 1} 1 {coordinates}")
    lines += ["", "Bonds", ""]
    lines += [f"{bond} 1 {bead} {bead + 1}" for bond, bead in enumerate(bonds, 1)]
    return "\n".join(lines) + "\n"
