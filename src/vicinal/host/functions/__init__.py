"""SR-IOV functions of this host: read, made, assigned to clusters, and taken back.

`sysfs.py` reads and changes nothing, `infiniband.py` knows GUIDs and why a port is not ACTIVE, and
`operations.py` changes things, by requests to `privileged/`, the only part that needs root
(`helper.py` reaches it). What tests call `fake` stands for cards that are rarely at hand.
"""
