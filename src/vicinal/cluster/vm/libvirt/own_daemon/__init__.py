"""Vicinal's own libvirt, for root on hosts where the system's does not run: containers and CI.

One daemon serves all clusters of a user. Its settings and state are in a directory of its own. It
ends with the last cluster that has VMs in it; the callers know which clusters these are.
"""
