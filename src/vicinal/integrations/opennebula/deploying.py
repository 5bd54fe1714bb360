"""deploy: the VM gets what its owner asks for, and the stock script starts it.

One that asks for nothing is left to that script alone.
"""

import sys
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.system import Host
from vicinal.host.topology import read_cpus
from vicinal.integrations.opennebula.deployment import add_region
from vicinal.integrations.opennebula.limits import FILE, read_limits
from vicinal.integrations.opennebula.pinning import pinned, read_pinning
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.reporting import log
from vicinal.integrations.opennebula.request import read_request
from vicinal.integrations.opennebula.stock import Call, become_stock, run_stock
from vicinal.integrations.opennebula.topology import read_topology


def deploy(call: Call, records: Records) -> int:
    """Have a region made for a VM that asks for one, and the VM started; the exit status."""
    vm_document = _vm_document(call)
    request, pinning = read_request(vm_document, call.vm), read_pinning(vm_document)
    if request is None and pinning is None:
        become_stock(call)
    topology, document = read_topology(vm_document), sys.stdin.buffer.read()
    if pinning is not None:
        cpus = read_cpus(Host()) if pinning.emulator else ()
        document, left = pinned(document, pinning, topology, cpus)
        if left:
            log(call.action, left)
    if request is None:
        become_stock(call, document)
    document = add_region(document, call.vm, request)
    if not records.all():  # else there are VMs that show it
        from vicinal.integrations.opennebula.emulator import require_region_device

        require_region_device(document, Host())
    limits = read_limits(call.remotes / FILE)
    status = None
    try:
        with records.held(call.vm, request, limits, topology.memory_nodes) as hold:
            status = run_stock(call, hold, document)
    except VicinalError as error:
        if status is None:
            raise
        log(call.action, f"the VM's region is left for now: {error}")
    return status


def _vm_document(call: Call) -> bytes:
    file = Path(call.arguments[0] if call.arguments else "").parent / "vm.xml"
    try:
        return file.read_bytes()
    except OSError as error:
        raise VicinalError(
            f"{file} cannot be read ({describe_os_error(error)})",
            "use a version of OpenNebula that writes it there before a VM is deployed",
        ) from error
