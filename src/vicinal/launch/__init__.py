"""Starts MPI jobs whose ranks reach each other through a region, and finds running jobs.

A job runs on nodes of a cluster, in guests, or over hosts. The launcher of the job's MPI library
starts it. `vicinal.cluster` creates the nodes, and `vicinal.region` knows a region's bytes. This
part measures nothing.
"""
