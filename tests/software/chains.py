"""The first state of a melt of bead-spring chains, as a data file for LAMMPS."""

from itertools import pairwise
from pathlib import Path

DENSITY = 0.85
"""Beads per volume, in the units of Lennard and Jones."""


def write_chains(path: Path, sites: int = 12, length: int = 48) -> None:
    """Write chains of `length` beads that wind through a cubic lattice of sites^3 beads.

    The walk goes from each site to a neighbour, and is cut into chains.
    """
    assert sites**3 % length == 0
    edge = (sites**3 / DENSITY) ** (1 / 3)
    walk: list[tuple[int, int, int]] = []
    for x in range(sites):
        for y in range(sites) if x % 2 == 0 else reversed(range(sites)):
            # Each row goes back the way that the one before it came.
            forth = len(walk) // sites % 2 == 0
            along = range(sites) if forth else reversed(range(sites))
            walk += [(x, y, z) for z in along]
    for one, other in pairwise(walk):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 1, (one, other)
    bonds = [n for n in range(1, len(walk)) if n % length != 0]
    lines = ["bead-spring chains", ""]
    lines += [f"{len(walk)} atoms", f"{len(bonds)} bonds", "1 atom types", "1 bond types", ""]
    lines += [f"0 {edge:.12f} {axis}lo {axis}hi" for axis in "xyz"]
    lines += ["", "Masses", "", "1 1.0", "", "Atoms # bond", ""]
    for number, site in enumerate(walk):
        place = " ".join(f"{(step + 0.5) * edge / sites:.12f}" for step in site)
        lines.append(f"{number + 1} {number // length + 1} 1 {place}")
    lines += ["", "Bonds", ""]
    lines += [f"{number} 1 {bead} {bead + 1}" for number, bead in enumerate(bonds, 1)]
    path.write_text("\n".join(lines) + "\n")
