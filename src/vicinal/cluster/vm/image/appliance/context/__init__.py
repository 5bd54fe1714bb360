"""What OpenNebula tells a machine that boots the appliance: its context.

These modules are called in the machine: by cloud-init, through the data source in
`root/usr/lib/python3/dist-packages/vicinal_cloud`, and at each boot by `vicinal-context.service`.
They need Python's standard library alone.
"""
