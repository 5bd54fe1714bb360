"""The files of the option --vicinal on a host, and their paths.

slurm.conf               read only plugstack.conf           gets one line, which includes the next
file plugstack.conf.d/vicinal.conf   loads the plugin, with its arguments vicinal.variables
the variables of a job's tasks: NAME=VALUE lines

A slurmd that fetches its configuration from slurmctld fetches the first two files into a directory
of its own. The other two must be on the slurmd's host, at the path that plugstack.conf includes.
"""

import fnmatch
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError
from vicinal.integrations.slurm.defaults import GRES, NETWORK_PORT
from vicinal.mpi.environment import (
    NO_LOCAL,
    library_to_preload,
    mpi_environment,
    provider_directory,
)
from vicinal.mpi.libraries import Family, Mpi
from vicinal.mpi.preloading import MPI_FILE, PAIRS_FILE

PLUGIN_FILE = "vicinal-spank.so"
INCLUDE_FILE = "vicinal.conf"
HOST_NETWORK = "host"
"""The plugin's network argument, instead of a port, if nodes use the hosts' network."""
DEFAULT_CONFIGURATION = Path("/etc/slurm/slurm.conf")
FETCHED_CONFIGURATION = Path("/run/slurm/conf/slurm.conf")
"""Slurm's own path of a fetched slurm.conf; resolves into a directory with the name _FETCHED."""
_FETCHED = "conf-cache"
_SETTING = re.compile(r"^\s*(\w+)\s*=\s*(\S+)", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*include[ \t]+(\S+)", re.MULTILINE)
_MPI = re.compile(r"--mpi ([\w.-]+)")
_PART = re.compile(r"[^\s#=]+")


@dataclass(frozen=True)
class Files:
    """The paths of the option's files."""

    slurm_conf: Path
    plugstack: Path
    include: Path
    variables: Path
    is_fetched: bool = False
    """Whether slurm.conf and plugstack.conf are copies of slurmctld's, which slurmd may rewrite."""

    @property
    def line(self) -> str:
        """The line that plugstack.conf gets."""
        return f"include {self.include}"

    def is_included(self, plugstack: str) -> bool:
        """Whether plugstack.conf with this text includes the file, by that line or by a pattern."""
        return any(
            fnmatch.fnmatch(str(self.include), match[1]) for match in _INCLUDE.finditer(plugstack)
        )


def find_files(slurm_conf: Path | None) -> Files:
    """The files beside a slurm.conf: by default SLURM_CONF, /etc/slurm/slurm.conf, or the fetched
    file.

    Raises VicinalError if there is no slurm.conf.
    """
    default = DEFAULT_CONFIGURATION
    if not default.exists() and FETCHED_CONFIGURATION.exists():
        default = FETCHED_CONFIGURATION
    chosen = (slurm_conf or Path(os.environ.get("SLURM_CONF") or default)).absolute()
    if not chosen.is_file():
        raise VicinalError(
            f"{chosen} does not exist",
            "name Slurm's configuration with --slurm-conf; if this host fetches its configuration "
            "from slurmctld, start slurmd first",
        )
    is_fetched = chosen.resolve().parent.name == _FETCHED
    directory = chosen.parent
    plugstack = Path(setting(chosen, "PlugStackConfig") or directory / "plugstack.conf")
    if is_fetched:
        directory = _included_from(plugstack)
    return Files(
        chosen,
        plugstack,
        directory / "plugstack.conf.d" / INCLUDE_FILE,
        directory / "vicinal.variables",
        is_fetched,
    )


def _included_from(plugstack: Path) -> Path:
    """slurmctld's directory of slurm.conf, from the path that the fetched plugstack.conf
    includes.
    """
    if plugstack.is_file():
        for match in _INCLUDE.finditer(plugstack.read_text(errors="replace")):
            if Path(match[1]).name == INCLUDE_FILE:
                return Path(match[1]).parent.parent
    return DEFAULT_CONFIGURATION.parent


def setting(slurm_conf: Path, name: str) -> str | None:
    """The last value of a setting in slurm.conf, as in Slurm; None if unset. Ignores included
    files.
    """
    found = None
    for key, value in _SETTING.findall(slurm_conf.read_text(errors="replace")):
        if key.lower() == name.lower():
            found = value
    return found


def find_plugin() -> Path:
    """The plugin: beside the provider, or in the checkout's build folder.

    Raises VicinalError if it is in neither.
    """
    paths = [provider_directory() / PLUGIN_FILE]
    tree = checkout()
    if tree is not None:
        paths.append(tree / "build" / "release" / "slurm" / PLUGIN_FILE)
    for path in paths:
        if path.is_file():
            return path
    if tree is None:
        raise VicinalError(
            f"this installation has no plugin for Slurm: {paths[-1]} does not exist",
            "install the plugin's package for this release of Slurm, or build Vicinal from source: "
            "a Python wheel has no plugin",
        )
    raise VicinalError(
        f"the plugin for Slurm was not built: {paths[-1]} does not exist",
        "install Slurm's headers (Debian: libslurm-dev), remove build/release and run `make`",
    )


def include_text(
    plugin: Path,
    command: Path,
    python: Path,
    regions: Path,
    variables: Path,
    most: int,
    *,
    vfs: bool = False,
    vlans: range | None = None,
    network: str = str(NETWORK_PORT),
) -> str:
    """The text of the file that loads the plugin.

    `vfs`: jobs can request SR-IOV VFs as GRES. `vlans`: the VFs of a job's nodes
    are in one of these VLANs. `network` is the UDP port of jobs' networks over several hosts, or
    HOST_NETWORK. Raises VicinalError for a path that the file cannot contain.
    """
    for path in (plugin, command, python, regions, variables):
        if not path.is_absolute() or not _PART.fullmatch(str(path)):
            raise VicinalError(
                f"plugstack.conf cannot contain the path {str(path)!r}",
                "choose an absolute path without spaces, # and =",
            )
    more = f" vfs={GRES}" if vfs else ""
    if vlans is not None:
        more += f" vlans={vlans[0]}-{vlans[-1]}"
    return (
        "# Slurm's option --vicinal. Made by `vicinal slurm install`.\n"
        f"required {plugin} command={command} python={python} directory={regions}"
        f" variables={variables} max_size={most // 1024}K network={network}{more}\n"
    )


def variables_text(mpis: Sequence[Mpi]) -> str:
    """The text of the file with the tasks' variables. Raises VicinalError as task_variables()."""
    lines = [f"{name}={value}\n" for name, value in task_variables(mpis).items()]
    made = " ".join(f"--mpi {mpi.value}" for mpi in mpis)
    return (
        "# What tasks of jobs with --vicinal get. Made by `vicinal slurm install "
        f"{made}`.\n{''.join(lines)}"
    )


@dataclass(frozen=True)
class Installed:
    """The options of the last `vicinal slurm install` on this host; `check` uses them as
    defaults.
    """

    arguments: Mapping[str, str]
    """The plugin's arguments by name; empty if nothing is installed."""
    mpis: tuple[Mpi, ...]

    @classmethod
    def read(cls, files: Files) -> Self:
        """Read the options from the installed files."""
        found = {}
        if files.include.is_file():
            for word in files.include.read_text(errors="replace").split():
                name, equals, value = word.partition("=")
                if equals:
                    found[name] = value
        said: list[str] = []
        if files.variables.is_file():
            said = _MPI.findall(files.variables.read_text(errors="replace").partition("\n")[0])
        return cls(found, tuple(mpi for mpi in Mpi if mpi.value in said))


def task_variables(mpis: Sequence[Mpi]) -> dict[str, str]:
    """The variables of tasks, which fit all of these MPI libraries at once.

    A library that is preloaded for one MPI library does nothing in programs of the others. The
    libraries go before the user's own preloaded libraries (slurm/task_variables.c). All other
    variables replace the user's values. Raises VicinalError if two MPI libraries need different
    values of a variable.
    """
    found: dict[str, str] = {}
    for mpi in mpis:
        wanted = mpi_environment(mpi)
        if mpi.family is Family.MPICH:
            # MPICH would otherwise use its own shared memory between ranks of one host.
            wanted[NO_LOCAL] = "1"
        for name, value in wanted.items():
            if found.setdefault(name, value) != value:
                raise VicinalError(
                    f"{name} is {found[name]!r} for one of these MPI libraries and {value!r} for "
                    f"{mpi.value}",
                    "leave out one of these --mpi",
                )
    files = [PAIRS_FILE] if any(mpi.family is Family.OPENMPI for mpi in mpis) else []
    with suppress(VicinalError):  # if LD_PRELOAD cannot contain the libraries' path
        found["LD_PRELOAD"] = ":".join(library_to_preload(file) for file in [*files, MPI_FILE])
    return found
