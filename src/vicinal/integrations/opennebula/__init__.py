"""OpenNebula: a variant of its KVM driver that gives the VMs of a job a shared region, a driver of
networks whose NICs are SR-IOV functions, and a probe.

OpenNebula's scripts on a host start driver, network, hooks or probe. The files of each program, in
the order in which an action runs through them:

    driver          actions of VMs; which of the following an action is
    deploy          deploy: the region and the pinning that the VM's owner asks for
    request         what the owner asks for in the VM's user template; the administrator's limits
    records         which regions there are on this host, for which VMs; makes and removes them
    call            an action as OpenNebula calls it; its own script, which is run in the end

    save_restore    save and restore; repair of what a killed driver has left
    migrate         migrate, on the host that the VM leaves, and arrive, on the other
    destination     the other host, and what the two say to each other
    machine         the VM's domain: what it has is taken from it, and given again
    held_resources  what that is, and where the VM runs, as its domain says it

    network         sets up the functions of our own networks, and takes them back
    hooks           gives functions of OpenNebula's own network drivers rates and link states
    vf              the functions that OpenNebula has chosen for a VM, and those that a VM has

    probe           what the scheduler is told of a host

    documents       for all of them: OpenNebula's XML, read without trust
    commands        `vicinal opennebula`
    installation    puts the scripts among OpenNebula's own

A driver's action should cost little beside the stock one: what takes long to load stays out.
"""
