"""Virtual clusters: several isolated nodes on one host or on several.

    file        what a cluster is to be, as people write it
    plan        from that and what is there to what has to be done, and doing it
    resources   each kind of thing that a cluster consists of
    nodes       kinds of nodes: container, vm, host, netns
    vm          how a virtual machine is built, started and reached
    hosts       clusters over several hosts

`manager.py` is the way in, and `commands.py` the command line. How jobs are started is in
`vicinal.launch`; nothing here knows of Slurm, of OpenNebula or of measurements.
"""
