"""Slurm's option --vicinal: its installation, and the regions, VFs and nodes of jobs.

The option itself is a plugin in C (slurm/ of the source tree), which calls `vicinal slurm region`,
`vicinal slurm sweep` and related commands. vicinal.launch has the start of ranks in an allocation
by `vicinal run`.
"""
