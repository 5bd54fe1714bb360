"""Clusters over several hosts.

Each host creates its own part of a cluster as if the part were a whole cluster, with a libvirt, a
region and a journal of its own. A small agent on the host (host_part_agent.py) does so at the
command's request. The command's host records the hosts, and the keys that all VMs share. So if a
command or an agent is killed or cut off, each host knows what it created, and the next `up` or
`down` repairs the cluster.
"""
