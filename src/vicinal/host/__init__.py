"""What this host can do for a virtual cluster, from kernel files and from programs.

`system.py` gives access to the host's files and programs. The modules beside it read facts
(`pci.py`, `topology.py`, ...), `checks/` judges the facts, and `doctor.py` runs the checks.
`vf/` assigns SR-IOV VFs; only this package changes the host. Nothing here knows
guests, MPI libraries or clusters.
"""
