"""The first state of a melt of bead-spring chains, as a data file for LAMMPS."""

DENSITY = 0.85
"""Beads per volume, in the units of Lennard and Jones."""


def chains(sites: int, length: int) -> str:
    """Chains of `length` beads that wind through a cubic lattice of sites^3 beads.

    The walk goes from each site to a neighbour, and is cut into chains; the number of beads is a
    multiple of `length`.
    """
    edge = (sites**3 / DENSITY) ** (1 / 3)
    walk: list[tuple[int, int, int]] = []
    for x in range(sites):
        for y in range(sites) if x % 2 == 0 else reversed(range(sites)):
            # Each row goes back the way that the one before it came.
            forth = len(walk) // sites % 2 == 0
            along = range(sites) if forth else reversed(range(sites))
            walk += [(x, y, z) for z in along]
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
    return "\n".join(lines) + "\n"
