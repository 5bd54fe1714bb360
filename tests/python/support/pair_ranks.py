"""The last rank accumulates pairs at the first, by mpi4py. Prints how many are wrong."""

import numpy
from mpi4py import MPI

PAIRS = 5

world = MPI.COMM_WORLD
kind = numpy.dtype([("value", "f8"), ("index", "i4")], align=True)
memory = numpy.zeros(PAIRS, dtype=kind)
window = MPI.Win.Create(memory, 1, comm=world)
window.Fence()
if world.rank == world.size - 1:
    sent = numpy.array([(number + 1.0, number) for number in range(PAIRS)], dtype=kind)
    pairs = [sent.view("u1"), PAIRS, MPI.DOUBLE_INT]
    window.Accumulate(pairs, 0, target=(0, PAIRS, MPI.DOUBLE_INT), op=MPI.MAXLOC)
window.Fence()
if world.rank == 0:
    right = [(number + 1.0, number) for number in range(PAIRS)]
    print(f"{sum(a != b for a, b in zip(memory.tolist(), right, strict=True))} wrong")
window.Free()
