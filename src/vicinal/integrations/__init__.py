"""Systems of other projects that use Vicinal: Slurm and OpenNebula.

Each system has a folder: the entry points that the system calls, the files installed into the
system, and the regions, VFs and networks of the system's jobs. The folders use clusters,
hosts and regions. No other part imports the folders. They start and measure no job by
`vicinal.launch`.
"""
