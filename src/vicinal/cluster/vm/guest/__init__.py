"""Guests as the host sees them: their identity, their console, and commands in them over ssh.

This is the same for all guests, whether a command or libvirt runs their QEMU. ../image has what
runs inside a guest.
"""
