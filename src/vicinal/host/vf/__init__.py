"""SR-IOV VFs of this host: reading, creating, assigning to clusters, and releasing.

`sysfs.py` reads and changes nothing. `infiniband.py` knows GUIDs, and why a port is not ACTIVE.
`operations.py` changes VFs by requests to `privileged/`, the only part that needs root;
`helper.py` sends the requests. In tests, `fake` objects replace cards that are rarely available.
"""
