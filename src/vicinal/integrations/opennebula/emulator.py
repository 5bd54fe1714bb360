"""Whether QEMU of this host can give a VM a region, asked before anything is made.

The domain's emulator is run by nobody but libvirt: it may be a user's word. So this host's own QEMU
is asked, and a domain with another one is left to libvirt, which says what that cannot do.
"""

from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.checks.qemu import qemu_program, read_device_models
from vicinal.host.system import Host
from vicinal.integrations.opennebula.deployment import MODEL
from vicinal.integrations.opennebula.documents import parse


def require_region_device(document: bytes, host: Host) -> None:
    """Raise VicinalError where the QEMU that a deployment file names has no device for regions."""
    program = qemu_program(host)
    named = parse(document, "the deployment file", "domain").findtext("devices/emulator")
    if program is None or not _same_file(program, named):
        return
    models = read_device_models(host)
    if models and MODEL not in models:
        raise VicinalError(
            f"{program} of this host has no {MODEL}, so no VM here can have a region",
            'ask for a host that has it: SCHED_REQUIREMENTS = "VICINAL_IVSHMEM = \\"YES\\""',
        )


def _same_file(program: Path, named: str | None) -> bool:
    try:
        return bool(named) and program.samefile(str(named))
    except (OSError, ValueError):
        return False
