"""Starting MPI jobs whose ranks reach each other through a region, and finding those that run.

A job runs on nodes of a cluster, in guests, or over hosts, each by the launcher that its MPI
library brings. What nodes are made of is in `vicinal.cluster`; the bytes of a region are in
`vicinal.region`. Nothing here measures.
"""
