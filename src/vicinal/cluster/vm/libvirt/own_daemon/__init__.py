"""A libvirt of Vicinal's own, for root where the system's does not run, as in containers and CI.

It is one daemon for all clusters of a user, with settings and state in a directory of its own, and
ends with the last cluster that has machines in it. Which clusters these are is not its concern.
"""
