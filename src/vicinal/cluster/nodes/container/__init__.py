"""Clusters of containers: nodes that live on after the command that made them has ended.

`cluster.ContainerCluster` is the way in. A cluster is a *head*, one process that stays
(head.py), and nodes that an existing container runtime makes inside of it (runtime.py).
"""
