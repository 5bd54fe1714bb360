"""Clusters of namespaces, with two lifetimes.

    cluster.ContainerCluster      lasting: nodes outlive the command that created them
    ephemeral.EphemeralCluster    nodes end with the command, however it ends

A cluster is a *head*, one process in namespaces of its own (head.py), and nodes inside these
namespaces. An existing container runtime creates the nodes of a lasting cluster (runtime.py).
Vicinal's own code creates the nodes of an ephemeral cluster (namespaces.py). Commands reach the
nodes of both clusters through the head (head_process.py).
"""
