"""Other people's systems that use Vicinal: Slurm and OpenNebula.

A folder for each: what the system calls, what is installed into it, and its jobs' regions,
functions and networks. They use clusters, hosts and regions. No other part imports them, and they
start and measure no job by `vicinal.launch`.
"""
