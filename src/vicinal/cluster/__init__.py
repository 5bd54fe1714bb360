"""Virtual clusters: isolated nodes on one host or on several.

    file        the cluster file
    plan        steps from the present to the desired state, their journal and their execution
    resources   each kind of resource of a cluster
    nodes       kinds of nodes: container, vm, host
    vm          how a virtual machine is built, started and reached
    hosts       clusters over several hosts

Begin with `manager.py`; `commands.py` is the command line. `vicinal.launch` starts jobs. This
package knows nothing of Slurm, OpenNebula or measurements.
"""
