"""The appliance: a bootable disk with Debian, an MPI library and Vicinal, for any cloud.

The modules here build it. `root/` has files of its disk, and `context/` has what it runs at boot.
../../image_commands.py lists the appliances of a user.
"""
