"""Slurm's option --vicinal: installing it, and the regions of jobs that have it.

The option itself is a plugin in C, in slurm/ of the source tree, which calls `vicinal slurm region`
and `vicinal slurm sweep`. How `vicinal run` starts ranks in an allocation is vicinal.launch's.
"""
