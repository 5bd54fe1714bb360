"""The interpreter that makes nodes, on hosts where virtual machines cannot start.

    fake_vms.py -m MODULE ARGUMENT...

A supervisor is real, except for its VMs. Each VM is a process that holds the groups of
its VFs open, as QEMU would. Programs for a VM run on the host.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from vicinal.cluster.vm.snapshot.starting import GuestMake
from vicinal.integrations.slurm import guest_nodes
from vicinal.integrations.slurm.staying import let_go, stay

NAME = "fake-vm"
DRIVERS = "FAKE_DRIVERS"
"""The variable with the drivers of VFs that the VMs' kernel has."""


def start(
    guests: Sequence[GuestMake], _directory: Path, _region: object, _network: object
) -> list[SimpleNamespace]:
    """Stands in for the start of guests."""
    started = []
    for guest in guests:
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            for vf in guest.vfs:
                group = Path(f"/sys/bus/pci/devices/{vf.address}/iommu_group").readlink().name
                os.open(f"/dev/vfio/{group}", os.O_RDWR)
            Path("/proc/self/comm").write_text(NAME)
            os.write(writer, b"y")
            let_go()
            stay()
        os.close(writer)
        if os.read(reader, 1) != b"y":
            sys.exit("vicinal: the VFs cannot be opened")
        started.append(SimpleNamespace(name=guest.name, process=process))
    return started


def main() -> None:
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    if module == "vicinal.integrations.slurm.guest_task":
        command = sys.argv[sys.argv.index("--") + 1 :]
        os.execvp(command[0], command)
    drivers = {*os.environ[DRIVERS].split()}
    image = SimpleNamespace(drivers=lambda: drivers, kernel_version="6.1", holds=frozenset[str]())
    vars(guest_nodes).update(start_guests=start, find_image=lambda: image)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
