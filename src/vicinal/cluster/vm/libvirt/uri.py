"""Which libvirt is meant; known without libvirt."""

import os

from vicinal.cluster.vm.libvirt.own import own_uri
from vicinal.host.libvirt_daemons import system_answers
from vicinal.host.system import Host

SYSTEM = "qemu:///system"
SESSION = "qemu:///session"


def default_uri() -> str:
    """What to connect to where nobody says it: LIBVIRT_DEFAULT_URI, or a session for users.

    For root it is the system's libvirt where that answers, else Vicinal's own, which may not run.
    """
    named = os.environ.get("LIBVIRT_DEFAULT_URI")
    if named:
        return named
    if os.geteuid() != 0:
        return SESSION
    return SYSTEM if system_answers(Host()) else own_uri()
