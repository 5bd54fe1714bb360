"""Virtual machines: how Vicinal builds, describes, starts, reaches and saves them.

    guest      a guest's identity, and the host's ssh connection to it
    image      what guests boot
    hardware   a VM's processors, memory and devices
    devices    each device of a VM, for QEMU and for libvirt
    qemu       guests whose QEMU a command runs, and the server of their doorbells
    libvirt    guests as libvirt domains, and Vicinal's own libvirt daemon
    snapshot   guests that start from a saved state

Nothing here knows clusters: ../nodes/vm has nodes that are virtual machines, and ../file has what
a cluster file says about them.
"""
