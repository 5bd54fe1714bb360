"""Nodes of a cluster that are virtual machines: their description, networks and ssh connections.

The VMs are libvirt domains (vicinal.cluster.vm.libvirt), which outlive the command that
creates them. A directory of the cluster keeps what later commands need.
"""
