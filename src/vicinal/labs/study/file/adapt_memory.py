"""The memory of virtual machines, of which those of all environments are up side by side."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vicinal.base.sizes import parse_size
from vicinal.labs.study.file.adapt_nodes import count_of, hosts_of
from vicinal.labs.study.file.machine import MachineFacts
from vicinal.labs.study.file.model import Adaptation, Environment, Study

_LEAST = 640 << 20
_STEP = 64 << 20
_USUAL = "1G"
"""What a machine has where a cluster's file says nothing."""

_HALF = "all virtual machines together have half of the machine's memory, and at least 640M each"


def share_memory(
    study: Study,
    machine: MachineFacts,
    unavailable: Mapping[str, str],
    adaptations: list[Adaptation],
) -> Study:
    """The study with machines that have room side by side."""
    clusters: list[Mapping[str, Any]] = []
    for environment in study.environments:
        if environment.name not in unavailable and environment.cluster not in clusters:
            clusters.append(environment.cluster)
    wanted = sum(_memory(cluster) for cluster in clusters)
    budget = machine.memory_bytes // 2
    if wanted <= budget:
        return study
    environments = tuple(
        each
        if each.name in unavailable or "vm" not in each.backends
        else _shrink(each, budget / wanted, adaptations)
        for each in study.environments
    )
    return replace(study, environments=environments)


def _memory(cluster: Mapping[str, Any]) -> int:
    """Bytes that its machines have on one host."""
    groups = [group for group in cluster["nodes"] if group.get("backend") == "vm"]
    return sum(-(-count_of(group) // hosts_of(cluster)) * _of_node(group) for group in groups)


def _of_node(group: Mapping[str, Any]) -> int:
    return parse_size(str(group.get("memory", _USUAL)))


def _shrink(environment: Environment, part: float, adaptations: list[Adaptation]) -> Environment:
    nodes = []
    for group in environment.cluster["nodes"]:
        asked = _of_node(group)
        fewer = max(int(asked * part) // _STEP * _STEP, _LEAST)
        if group.get("backend") != "vm" or fewer >= asked:
            nodes.append(group)
            continue
        nodes.append({**group, "memory": f"{fewer >> 20}M"})
        adaptations.append(
            Adaptation(
                f"environment {environment.name}: machines of {fewer >> 20} MiB instead of "
                f"{asked >> 20}",
                _HALF,
            )
        )
    return replace(environment, cluster={**environment.cluster, "nodes": nodes})
