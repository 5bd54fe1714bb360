"""That a libvirt cannot be spoken to; known without libvirt."""

from vicinal.base.errors import VicinalError


class UnreachableError(VicinalError):
    """No connection to a libvirt comes about, so nothing is known of what it has."""
