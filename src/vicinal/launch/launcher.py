"""The command lines of the stock launchers: MPICH's and Intel's mpiexec, Open MPI's mpirun.

All start a daemon on each node through a remote shell: over hosts ssh or, inside of an
allocation, Slurm's srun, and on the nodes of a cluster of namespaces a script that enters a node's
namespaces instead.
"""

import os
from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote.reach import SSH_OPTIONS, Reach
from vicinal.cluster.nodes.job_nodes import Places
from vicinal.mpi.libraries import Family, Installation
from vicinal.mpi.placement import Placement
from vicinal.mpi.variables import portable_variables

_OUTER_JOB = ("SLURM_", "PBS_", "LSB_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_")
"""Variables by which launchers and MPI libraries take us for a part of another job."""

_OPEN_MPI_HANDS_ON = ("OMPI_", "PRTE_", "PMIX_")
"""Variables that Open MPI's launcher hands on to all ranks by itself."""

_FOR_RANKS = ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "VICINAL_NET_INTERFACE")
"""Others that ranks on other hosts need, where they are set."""

_ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Variables that let root run mpirun, of Open MPI 4 and 5; PRRTE's own do not (5.0.11)."""

_TOPOLOGY = "HWLOC_XMLFILE"
"""Variable that names a file with the machine's topology for hwloc."""


def launcher(
    mpi: Installation,
    placements: Sequence[Placement],
    program: Sequence[str],
    inherited: Mapping[str, str],
    places: Places | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The command line that starts a job from the head of a cluster, and its environment.

    The ranks inherit that environment. It is `inherited` without what belongs to another
    job, and with what the launcher needs.
    """
    variables = _without_outer_job(mpi, inherited)
    make = {Family.MPICH: _mpich, Family.OPENMPI: _openmpi, Family.INTEL: _intel}[mpi.family]
    return make(mpi, placements, list(program), variables, places or Places())


def host_launcher(
    mpi: Installation,
    placements: Sequence[Placement],
    program: Sequence[str],
    inherited: Mapping[str, str],
    chosen: Mapping[str, str],
    reach: Reach = Reach.SSH,
) -> tuple[list[str], dict[str, str]]:
    """The same over several hosts; `chosen` are variables that all ranks must have."""
    variables = _without_outer_job(mpi, inherited) | dict(chosen)
    if mpi.family is Family.OPENMPI:
        _check_user(variables)
    if reach is Reach.SLURM:
        # What srun needs to know of the allocation. What it hands on to the daemons is no rank's.
        variables |= {name: inherited[name] for name in inherited if name.startswith("SLURM_")}
    hosts, ranks = _hosts(placements), str(_ranks(placements))
    started_by = {Reach.SSH: "ssh", Reach.SLURM: "slurm"}[reach]
    ssh_options = " ".join(f"-o {option}" for option in SSH_OPTIONS)
    match mpi.family:
        case Family.MPICH:
            if reach is Reach.SSH:
                variables.setdefault("HYDRA_LAUNCHER_EXTRA_ARGS", ssh_options)
            command = [str(mpi.launcher), "-launcher", started_by, "-hosts", hosts, "-n", ranks]
        case Family.INTEL:
            variables["I_MPI_ROOT"] = str(mpi.prefix)
            if reach is Reach.SSH:
                variables.setdefault("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", ssh_options)
            command = [str(mpi.launcher), "-bootstrap", started_by]
            return command + _sets_of_arguments(placements, program), variables
        case Family.OPENMPI:
            command = [str(mpi.launcher), "--prefix", str(mpi.prefix), "--host", hosts]
            command += ["-n", ranks, "--map-by", "slot"]
            _let_daemons_start_ranks(mpi, variables)
            if reach is Reach.SSH:
                variables.setdefault(
                    "PRTE_MCA_plm_ssh_args" if mpi.starts_with_prrte else "OMPI_MCA_plm_rsh_args",
                    ssh_options,
                )
            # The others hand on all there is.
            handed_on = {*chosen, *_FOR_RANKS, *portable_variables(variables)} & variables.keys()
            for name in sorted(handed_on):
                if not name.startswith(_OPEN_MPI_HANDS_ON):
                    command += ["-x", name]
    return [*command, *program], variables


def _check_user(variables: Mapping[str, str]) -> None:
    """Raise VicinalError where Open MPI's launcher would refuse to run, since we are root.

    What is run on hosts as root can do harm to them, so that is for the user to say. Nodes of a
    cluster are made for jobs, and everybody is root there.
    """
    if os.geteuid() == 0 and not all(variables.get(name) == "1" for name in _ALLOW_ROOT):
        raise VicinalError(
            "Open MPI's launcher refuses to run as root",
            f"run the job as another user, or set {' and '.join(f'{n}=1' for n in _ALLOW_ROOT)}",
        )


def _without_outer_job(mpi: Installation, inherited: Mapping[str, str]) -> dict[str, str]:
    variables = {
        name: value for name, value in inherited.items() if not name.startswith(_OUTER_JOB)
    }
    directory = mpi.launcher.parent
    variables["PATH"] = f"{directory}:{variables.get('PATH', '/usr/bin:/bin')}"
    variables.setdefault("MPI4PY_LIBMPI", str(mpi.library))
    return variables


def _mpich(
    mpi: Installation,
    placements: Sequence[Placement],
    program: list[str],
    variables: dict[str, str],
    places: Places,
) -> tuple[list[str], dict[str, str]]:
    command = [str(mpi.launcher), "-launcher", "ssh", "-launcher-exec", places.remote_shell]
    if places.launcher:
        command += ["-localhost", places.launcher]
    command += ["-hosts", _hosts(placements), "-n", str(_ranks(placements))]
    if _TOPOLOGY not in variables:
        # Without it the daemons write the machine's topology into files in /tmp for the
        # ranks, and leave them there when they are killed. The ranks find it by themselves.
        variables[_TOPOLOGY] = os.devnull
        command += ["env", "-u", _TOPOLOGY]
    return command + program, variables


def _intel(
    mpi: Installation,
    placements: Sequence[Placement],
    program: list[str],
    variables: dict[str, str],
    places: Places,
) -> tuple[list[str], dict[str, str]]:
    variables["I_MPI_ROOT"] = str(mpi.prefix)
    # Nodes share the host's cores: binding on each by itself would put all on the first.
    variables.setdefault("I_MPI_PIN", "off")
    command = [str(mpi.launcher), "-bootstrap", "ssh", "-bootstrap-exec", places.remote_shell]
    return command + _sets_of_arguments(placements, program), variables


def _sets_of_arguments(placements: Sequence[Placement], program: Sequence[str]) -> list[str]:
    # Intel's reads NODE:RANKS in a list of hosts, but may put more ranks on the first. So each
    # node has a set of arguments of its own; ranks are numbered in their order.
    arguments = []
    for index, placement in enumerate(placements):
        arguments += [":"] * (index > 0)
        arguments += ["-host", placement.node, "-n", str(placement.ranks), *program]
    return arguments


def _openmpi(
    mpi: Installation,
    placements: Sequence[Placement],
    program: list[str],
    variables: dict[str, str],
    places: Places,
) -> tuple[list[str], dict[str, str]]:
    command = [str(mpi.launcher), "--host", _hosts(placements), "-n", str(_ranks(placements))]
    # Nodes share the host's cores: binding on each by itself would put all on the first.
    command += ["--map-by", "slot", "--bind-to", "none"]
    if mpi.starts_with_prrte:
        variables |= {
            "PRTE_MCA_plm": "ssh",
            "PRTE_MCA_plm_ssh_agent": places.remote_shell,
            "PRTE_MCA_prte_tmpdir_base": places.own,
        }
    else:
        variables |= {
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_plm_rsh_agent": places.remote_shell,
            "OMPI_MCA_orte_tmpdir_base": places.own,
        }
    _let_daemons_start_ranks(mpi, variables)
    # Who runs a cluster is root in it, be it in a user namespace.
    variables |= dict.fromkeys(_ALLOW_ROOT, "1")
    return command + program, variables


def _let_daemons_start_ranks(mpi: Installation, variables: dict[str, str]) -> None:
    """Let daemons start ranks themselves, not by threads of theirs, unless the user decided.

    The end of a rank that a thread started is lost when it comes before the thread has noted which
    process that is, and the job hangs: seen in one of 20 runs of `true` on a busy host with Open
    MPI 5.0.11 (PRRTE's pull request 2713 mends it). PRRTE's daemons take 16 threads for it, ORTE's
    some from 32 ranks on.
    """
    if mpi.starts_with_prrte:
        variables.setdefault("PRTE_MCA_odls_base_max_threads", "0")
    else:
        variables.setdefault("OMPI_MCA_odls_base_num_threads", "0")


def _hosts(placements: Sequence[Placement]) -> str:
    return ",".join(f"{placement.node}:{placement.ranks}" for placement in placements)


def _ranks(placements: Sequence[Placement]) -> int:
    return sum(placement.ranks for placement in placements)
