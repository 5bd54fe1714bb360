"""Virtual machines of a cluster, as domains of libvirt: described, made, observed and removed.

    with connect() as hypervisor:
        define(hypervisor, spec)
        start(hypervisor, spec.name)

Nothing is kept here: a domain carries in its own metadata which cluster and node it is, and
what there is is asked of libvirt each time. `domain_spec` and `domain_xml` work without libvirt.
"""
