"""Clusters over several hosts.

Each host makes its own share of a cluster, with its own libvirt, its own region and a journal of
its own, as if that were all there is: a small agent (share_agent.py) does it there at the command's
request. The command's host keeps a record of the hosts, and the keys that all machines have. So
whichever side is killed or cut off, each knows what it made, and the next `up` or `down` repairs
it.
"""
