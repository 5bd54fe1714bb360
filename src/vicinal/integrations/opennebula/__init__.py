"""OpenNebula: a variant of its KVM driver that gives the VMs of a job a shared region, a driver of
networks whose NICs are SR-IOV functions, and a probe.

    documents    XML as OpenNebula writes it, read without trust
    request      what a VM's owner asks for, in the VM's user template
    deployment   the domain that OpenNebula wrote, with the region in it
    editing      how such a document is changed, all else staying as it was
    topology     processors and NUMA nodes that OpenNebula has chosen for a VM
    placement    whether another host has the processors and NUMA nodes that a domain names
    pinning      where a VM's threads run, closer than OpenNebula can say
    emulator     whether QEMU of this host has the device for it
    limits       what the administrator allows
    records      which region there is on this host, and for which VMs
    hypervisor   what libvirt says of the VMs here
    stock        an action as OpenNebula calls it, and its own script for that
    actions      cancel, shutdown, and which of the following it is
    deploying    deploy
    site         a host, for actions on VMs that have something of it
    machine      such a VM: what it has is taken from it, and given again
    belongings   what that is, as the VM's domain says it
    leaving      the VM's ranks leave the region, and may come back
    suspending   save and restore
    migration    migrate, on the host that the VM leaves
    steps        what the hosts of a move say to each other
    destination  the other host, as that one sees it
    arrival      what the other host does
    repair       what a killed driver has left
    driver       what those scripts run
    nics         the functions that OpenNebula has chosen for a VM
    network      sets those up, and takes them back
    hooks        gives functions of OpenNebula's own network drivers rates and link states
    assignments  whose functions are, and what a killed driver has left of them
    reporting    how a script tells OpenNebula why it failed
    probe        what the scheduler is told of a host
    installation the files of all these
    hook_files   where hooks are, and which drivers run them

A driver's action should cost little beside the stock one: what takes long to load stays out.
"""
