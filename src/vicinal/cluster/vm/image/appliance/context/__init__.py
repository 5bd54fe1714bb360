"""OpenNebula's context of a VM that boots the appliance.

These modules run in the VM: cloud-init calls them through the data source in
`root/usr/lib/python3/dist-packages/vicinal_cloud`, and `vicinal-context.service` calls them at each
boot. They need only Python's standard library.
"""
