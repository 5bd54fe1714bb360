"""What this host can do for a virtual cluster, read from the kernel and asked of programs.

`system.py` is the way to the host's files and programs; the modules beside it read facts (`pci.py`,
`topology.py`, ...); `checks/` judges them, and `doctor.py` runs the checks. `functions/` assigns
SR-IOV functions; it alone changes the host. Here is nothing of guests, MPI libraries or clusters.
"""
