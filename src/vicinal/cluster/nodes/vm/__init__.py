"""Nodes that are virtual machines: their description, networks and ssh connections.

The VMs of a cluster are libvirt domains (vicinal.cluster.vm.libvirt), which outlive the command
that creates them. A directory of the cluster keeps what later commands need. The two guests of
`vicinal guests` (pair.py) end with their command.
"""
