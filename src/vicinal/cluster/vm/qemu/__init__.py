"""Guests whose QEMU a command starts itself, and which end with that command.

Virtual machines that outlive a command are libvirt domains (../libvirt).
"""
