"""What a study lacks on this machine: found out before anything is started."""

from collections.abc import Mapping

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.vm.hypervisor import check_usable
from vicinal.cluster.vm.libvirt.uri import default_uri
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.study.environments.in_guests import missing_in_guests
from vicinal.labs.study.file.model import Environment, Study
from vicinal.labs.study.workloads.driver import Driver, Tools
from vicinal.launch.guest_job import check_guests_have
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.libraries import installation


def check_ready(study: Study, tools: Tools, drivers: Mapping[str, Driver]) -> dict[str, str]:
    """Why environments, workloads and `ENVIRONMENT/WORKLOAD` cannot be measured, by their names.

    Programs are made here, where they are made at all. Raises VicinalError for a workload that
    makes no sense.
    """
    lacking = dict(study.unavailable)
    for environment in study.environments:
        if environment.name not in lacking:
            why = _why_no_environment(environment)
            if why is not None:
                lacking[environment.name] = why
    there = [each for each in study.environments if each.name not in lacking]
    for workload in study.workloads:
        if workload.name in lacking:
            continue
        driver = drivers.get(workload.driver)
        if driver is None:
            raise VicinalError(
                f"the workload {workload.name} has no driver {workload.driver}",
                f"drivers are {', '.join(sorted(drivers))}",
            )
        reasons = {
            mpi: driver.missing(workload, mpi, tools) for mpi in {each.mpi for each in there}
        }
        if reasons and all(reasons.values()):
            lacking[workload.name] = next(iter(reasons.values())) or ""
            continue
        programs = {
            mpi: driver.program(workload, mpi, tools) for mpi, why in reasons.items() if not why
        }
        for environment in there:
            mpi = environment.mpi
            why = reasons[mpi] or missing_in_guests(environment, programs[mpi])
            if why:
                lacking[f"{environment.name}/{workload.name}"] = why
    return lacking


def left_out(study: Study, lacking: Mapping[str, str]) -> set[tuple[str, str]]:
    """The environments and workloads that cannot be launched together."""
    return {
        (environment.name, workload.name)
        for environment in study.environments
        for workload in study.workloads
        if not lacking.keys().isdisjoint(
            {environment.name, workload.name, f"{environment.name}/{workload.name}"}
        )
    }


def _why_no_environment(environment: Environment) -> str | None:
    """What an environment lacks, with the remedy; None where it can be made, as far as is seen."""
    if environment.path is MessagePath.REGION and environment.cluster.get("hosts"):
        return (
            "it is on several hosts, and a study does not see yet what went through their regions: "
            "give it the path network"
        )
    try:
        installation(environment.mpi)
        for node in environment.cluster["nodes"]:
            if node.get("backend", "container") == "container":
                choose_runtime(node.get("runtime"))
        if "vm" in environment.backends:
            check_guests_have(environment.mpi)
            find_qemu()
            check_usable(environment.cluster.get("hypervisor") or default_uri())
    except VicinalError as error:
        return str(error)
    return None
