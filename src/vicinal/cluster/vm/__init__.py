"""Virtual machines: how one is built, started, described, saved and reached.

    guest      who a guest is, and the host's way into it, whoever runs its QEMU
    image      what guests boot
    hardware   what a machine consists of, whoever runs its QEMU
    devices    each device of a machine, as QEMU and as libvirt have it
    qemu       guests that a command runs itself, and the server of their doorbells
    libvirt    guests that libvirt runs, and the libvirt of Vicinal's own
    snapshot   guests that start from a saved state

Here is nothing of clusters: nodes that are VMs are in ../nodes/vm, and what a cluster's file says
of them in ../file.
"""
