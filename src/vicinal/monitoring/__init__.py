"""What jobs on this host do, read from their regions: `vicinal top` and `vicinal metrics`.

Nothing here writes to a region or speaks to a rank: how a region is read is vicinal.region's, and
how the jobs are started is vicinal.launch's.
"""
