"""Virtual machines of a cluster as libvirt domains: defining, starting, observing, removing.

    with connect() as hypervisor:
        define(hypervisor, spec)
        start(hypervisor, spec.name)

Nothing is recorded here. A domain's metadata has its cluster and node, and libvirt is asked for
the domains each time. `domain_spec` and `domain_xml` work without libvirt.
"""
