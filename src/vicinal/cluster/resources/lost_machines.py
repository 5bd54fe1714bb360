"""Machines of a cluster whose libvirt is lost, which are given up so that all else can go."""

from collections.abc import Callable, Mapping

from vicinal.cluster.nodes.vm.hypervisor import hypervisor_at
from vicinal.cluster.plan.applying import Show
from vicinal.cluster.plan.journal import Event, Journal
from vicinal.cluster.plan.planning import Action, Step
from vicinal.cluster.plan.resource import Resource
from vicinal.cluster.resources.machines import MachineResource
from vicinal.cluster.vm.libvirt.unreachable import UnreachableError


def forget_lost(
    resources: Mapping[str, Resource], journal: Journal, show: Show, say: Callable[[str], None]
) -> list[str]:
    """Give up the machines whose libvirt does not answer; their keys.

    `say` is told what may be left of each. Those of a libvirt that answers are left as they are.
    """
    forgotten: list[str] = []
    lost: dict[str, bool] = {}
    for key, resource in reversed(list(resources.items())):
        if not isinstance(resource, MachineResource):
            continue
        uri = resource.machine.uri
        if uri not in lost:
            lost[uri] = _is_lost(uri)
        if lost[uri]:
            show(Step(Action.REMOVE, resource, "its libvirt is lost"))
            journal.write(resource, Event.REMOVING)
            left = resource.forget()
            journal.write(resource, Event.REMOVED)
            say(f"left behind: {left}")
            forgotten.append(key)
    return forgotten


def _is_lost(uri: str) -> bool:
    try:
        hypervisor_at(uri)
    except UnreachableError:
        return True
    return False
