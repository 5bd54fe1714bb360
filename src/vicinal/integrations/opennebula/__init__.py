"""OpenNebula: a variant of its KVM driver that gives the VMs of a job a shared region, a network
driver whose NICs are SR-IOV VFs, and a probe.

OpenNebula's scripts on a host start the driver, the network driver, the hooks or the probe. The
files of each program, in the order in which an action runs through them:

    driver          the actions of VMs; chooses the module below that does the action
    deploy          deploy: the region and the pinning that the VM's owner requests
    request         the owner's request in the VM's user template; the administrator's limits
    records         the regions on this host and their VMs; creates and removes regions
    call            an action as OpenNebula calls it; a parser of its XML that trusts no input; runs
                    OpenNebula's own script at the end

    moves           save and restore; migrate, on the host that the VM leaves; arrive, on the other
                    host; repair after a driver was killed
    destination     the connection to the other host, and its protocol
    vm              the VM's domain: detaches the VM's resources and attaches them again
    held_resources  these resources, and the VM's placement, as the domain describes them

    network         configures the VFs of Vicinal's networks, and releases them; hooks: sets rates
                    and link states of VFs for OpenNebula's own network drivers
    vf              the VFs that OpenNebula chose for a VM, and the VFs that a VM has

    probe           facts about a host for the scheduler

    installation    `vicinal opennebula`: installs the scripts among OpenNebula's scripts

An action should cost little more than with the stock driver. So each action imports only the
modules that it needs.
"""
