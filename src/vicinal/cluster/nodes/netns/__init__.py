"""Isolated nodes made of Linux namespaces, which end with the command that made them.

`cluster.NativeCluster` is the way in. It starts one process, the keeper (keeper.py), in namespaces
of its own; each node lives below it. Containers, which stay, are in ../container; what the heads of
both do alike is in ../head_setup.py and ../network.py.
"""
