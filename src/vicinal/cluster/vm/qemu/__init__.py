"""Guests whose QEMU a command starts itself, and which end with it: choice, command line, pair.

Virtual machines that outlive a command are libvirt's (../libvirt).
"""
