"""MPI libraries and their jobs: programs, variables, placement, and the transports of messages.

This folder has the parts of a job that depend on its MPI library and on the provider, on any kind
of node. `vicinal.launch` starts jobs; nothing here knows nodes.
"""
