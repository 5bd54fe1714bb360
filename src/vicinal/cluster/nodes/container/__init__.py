"""Clusters of namespaces, with two lifetimes.

    cluster.ContainerCluster      lasting: nodes live on when the command that made them has ended
    ephemeral.EphemeralCluster    nodes end with the command, however it ends

A cluster is a *head*, one process in namespaces of its own (head.py), and nodes inside of it. An
existing container runtime makes the nodes of a lasting cluster (runtime.py), our own code those of
an ephemeral one (namespaces.py). Commands reach both through the head (head_process.py).
"""
