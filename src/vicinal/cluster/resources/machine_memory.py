"""Whether a host has the memory for the virtual machines that a plan starts, before any is made."""

from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.memory import check_room
from vicinal.cluster.plan.planning import Action, Plan
from vicinal.cluster.plan.resource import Condition
from vicinal.cluster.resources.machines import MachineResource
from vicinal.cluster.resources.region import RegionResource


def check_memory(plan: Plan) -> None:
    """Raise VicinalError where it has too little, regions counted.

    What the plan takes away gives its own back first.
    """
    starting = _machines(plan, Action.CREATE, Action.START)
    ending = [
        machine
        for machine in _machines(plan, Action.REMOVE)
        if MachineResource(machine).observe().condition is Condition.READY
    ]
    regions = [
        (step.action, step.resource)
        for step in plan.steps
        if isinstance(step.resource, RegionResource)
    ]
    freed = sum(each.held.shared_bytes for action, each in regions if action is Action.REMOVE)
    taken = sum(each.file_bytes for action, each in regions if action is Action.CREATE)
    check_room(starting, ending, taken - freed)


def _machines(plan: Plan, *actions: Action) -> list[Machine]:
    return [
        step.resource.machine
        for step in plan.steps
        if step.action in actions and isinstance(step.resource, MachineResource)
    ]
