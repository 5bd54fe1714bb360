"""What this host can do for a virtual cluster, read from the kernel and asked of programs.

Nothing here changes anything. `system.py` is the way to the host's files and programs; the modules
beside it read facts (`pci.py`, `topology.py`, ...); `checks/` judges them, and `doctor.py` runs
the checks.
"""
