"""What clusters are made of: a folder for each kind of node.

    container   by crun, runc or bubblewrap; they outlive the command
    vm          virtual machines as nodes: neighbours, the way in, moves; ../vm makes a VM
    host        the host itself
    netns       namespaces that end with the command

The modules beside the folders are what jobs and the kinds have in common: job_nodes.py is what jobs
ask of every kind, and head_setup.py and network.py are of both kinds of namespaces. Which nodes a
cluster has is in ../file, and what has to be done for them in ../plan and ../resources.
"""
