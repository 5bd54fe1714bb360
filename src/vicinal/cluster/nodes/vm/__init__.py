"""Nodes of a cluster that are virtual machines: what each is, its neighbours, and the way in.

They are domains of libvirt (vicinal.cluster.vm.libvirt), which go on when the command that made
them has ended. What a later command needs of them is in a directory of the cluster's.
"""
