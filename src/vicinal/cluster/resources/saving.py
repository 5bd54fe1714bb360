"""Which machines of a cluster, or of one host's share of it, are saved together."""

from collections.abc import Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.plan.resource import Condition, Resource
from vicinal.cluster.resources.doorbell import DoorbellResource
from vicinal.cluster.resources.guests import GuestsResource
from vicinal.cluster.resources.machines import MachineResource


def running_machines(name: str, resources: Mapping[str, Resource]) -> list[Machine]:
    """The machines that run, of a cluster that has these resources on this host.

    Raises VicinalError where something else runs in it, which could not be kept.
    """
    found = []
    for resource in resources.values():
        if isinstance(resource, MachineResource):
            if resource.observe().condition is Condition.READY:
                found.append(resource.machine)
        elif resource.runs and not isinstance(resource, GuestsResource | DoorbellResource):
            raise VicinalError(
                f"{resource.key} of {name} is no virtual machine, and cannot be saved",
                "stop the cluster instead, which ends what runs in it",
            )
    return found
