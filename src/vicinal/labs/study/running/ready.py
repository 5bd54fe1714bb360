"""Finds out what a study lacks on this machine, before anything starts.

This includes programs that virtual machines could not run, because their image contains little of
Debian.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.choice import choose_runtime
from vicinal.cluster.nodes.vm.hypervisor import check_usable
from vicinal.cluster.vm.libvirt.uri import default_uri
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.labs.study.file.model import Environment, Study
from vicinal.labs.study.workloads.driver import Driver, Program, Tools
from vicinal.launch.guest_job import check_guests_have
from vicinal.mpi.environment import MessagePath
from vicinal.mpi.libfabric import linked_libraries
from vicinal.mpi.libraries import STANDARD, installation, mpi_prefix

_IN_EVERY_IMAGE = (
    *("libc.so", "libutil.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libresolv.so"),
    *("libgcc_s.so", "libz.so", "ld-linux"),
)
"""Prefixes of library names that the parts for starting a guest bring along."""

_ABSOLUTE = re.compile(r"(?<![\w.])/[\w.+/-]+")
_NAMED = 3
_SHELLS = ("/bin/sh", "/usr/bin/env", "/usr/bin/taskset")
"""Programs that busybox provides in the virtual machines."""


def check_ready(study: Study, tools: Tools, drivers: Mapping[str, Driver]) -> dict[str, str]:
    """Why environments, workloads and `ENVIRONMENT/WORKLOAD` cannot be measured, by their names.

    Builds programs that need to be built. Raises VicinalError for an invalid workload.
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
                f"choose one of {', '.join(sorted(drivers))}",
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
    """The pairs of environment and workload that cannot be launched."""
    return {
        (environment.name, workload.name)
        for environment in study.environments
        for workload in study.workloads
        if not lacking.keys().isdisjoint(
            {environment.name, workload.name, f"{environment.name}/{workload.name}"}
        )
    }


def _why_no_environment(environment: Environment) -> str | None:
    """What an environment lacks, with the remedy; None if nothing is known to be missing."""
    if environment.path is MessagePath.REGION and environment.cluster.get("hosts"):
        return (
            "it is on several hosts, and a study cannot check yet which messages used their "
            "regions: give it the path network"
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


def missing_in_guests(environment: Environment, program: Program) -> str | None:
    """Why a program would not start in an environment's virtual machines; None if it would.

    If the environment's file names packages or files for the image, nothing is checked.
    """
    if "vm" not in environment.backends or _has_additions(environment):
        return None
    held = [mpi_prefix(mpi).resolve() for mpi in STANDARD]
    for command in (program.command, program.server):
        for path in _programs(command):
            # The first word's file is copied into the guests; files that arguments name are not.
            wanted = [] if path == Path(command[0]) or _is_held(path, held) else [path.name]
            wanted += sorted(_libraries(path, held))
            if wanted and not str(path).startswith(_SHELLS):
                return (
                    f"{path} needs {_few(wanted)}, which virtual machines do not have: "
                    "name the Debian packages that contain it as image: {packages: [...]} of the "
                    "environment's cluster"
                )
    return None


def _programs(command: Sequence[str]) -> Iterable[Path]:
    """The first word, and programs that a script in the other words names by absolute paths."""
    if command:
        yield Path(command[0])
    for word in command[1:]:
        for found in _ABSOLUTE.findall(word):
            path = Path(found)
            if path.is_file() and os.access(path, os.X_OK):
                yield path


def _libraries(program: Path, held: Sequence[Path]) -> Iterable[str]:
    """The libraries of the program that the virtual machines lack."""
    for name, path in linked_libraries(program).items():
        if name.startswith(("libmpi", *_IN_EVERY_IMAGE)):
            continue
        if path is None or not _is_held(path, held):
            yield name


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_held(path: Path, held: Sequence[Path]) -> bool:
    return any(path.resolve().is_relative_to(each) for each in held)


def _has_additions(environment: Environment) -> bool:
    parts = (environment.cluster, *environment.cluster["nodes"])
    return any("image" in part for part in parts)
