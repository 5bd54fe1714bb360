"""Guests as seen from the host: who each is, its console, and commands in it, over a virtio port.

It is the same for every guest, whether a command or libvirt runs its QEMU. What runs inside of a
guest is in ../image.
"""
