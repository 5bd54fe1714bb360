"""The appliance: a bootable disk with Debian, an MPI library and Vicinal, for any cloud.

Building it is here; `root/` has the files of its disk, and `context/` what its boot calls. Which
appliances are kept for a user is in ../../image_commands.py.
"""
