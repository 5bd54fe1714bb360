"""The nodes of clusters: a folder for each kind of node.

    container   containers of crun, runc or bubblewrap, which outlive the command
    vm          virtual machines as nodes: neighbours, ssh access, moves; ../vm builds a VM
    host        the host itself
    netns       namespaces that end with the command

The modules beside the folders are shared: job_nodes.py has the protocols by which jobs use every
kind of node, and head_setup.py and network.py serve both kinds of namespaces. ../file determines
the nodes of a cluster; ../plan and ../resources create them.
"""
