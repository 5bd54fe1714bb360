"""The error of an unreachable libvirt, in a module that does not import libvirt."""

from vicinal.base.errors import VicinalError


class UnreachableError(VicinalError):
    """No connection to libvirt is possible, so the state of its domains is unknown."""
