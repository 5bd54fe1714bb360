"""The nodes of clusters: a folder for each kind of node.

    container   namespaces, by crun, runc or bubblewrap: they outlive the command, or end with it
    vm          virtual machines as nodes: neighbours, ssh access, moves; ../vm builds a VM
    host        the host itself

The modules beside the folders are shared: job_nodes.py has the protocols by which jobs use every
kind of node, and network.py is about the bridge of a cluster of namespaces. ../file determines the
nodes of a cluster; ../plan and ../resources create them.
"""
