"""OpenNebula: a variant of its KVM driver that gives the VMs of a job a shared region, a driver of
networks whose NICs are SR-IOV functions, and a probe.

    documents    XML as OpenNebula writes it, read without trust
    request      what a VM's owner asks for, in the VM's user template
    deployment   the domain that OpenNebula wrote, with the region in it
    limits       what the administrator allows
    records      which region there is on this host, and for which VMs
    hypervisor   which VMs run here
    actions      deploy, cancel, shutdown, save, migrate: ours, around the stock scripts
    driver       what those scripts run
    nics         the functions that OpenNebula has chosen for a VM
    network      sets those up, and takes them back
    reporting    how a script tells OpenNebula why it failed
    probe        what the scheduler is told of a host
    installation the files of all these

A driver's action should cost little beside the stock one: what needs numpy stays out.
"""
