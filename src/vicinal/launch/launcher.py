"""The command lines of the stock launchers: mpiexec of MPICH and Intel MPI, mpirun of Open MPI.

Each launcher starts a daemon on each node through a remote shell. Over hosts the remote shell is
ssh or, inside an allocation, Slurm's srun. On nodes of a cluster of namespaces it is a script that
enters a node's namespaces.
"""

import os
from collections.abc import Mapping, Sequence

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote.reach import SSH_OPTIONS, Reach
from vicinal.cluster.nodes.job_nodes import JobPaths
from vicinal.mpi.libraries import Family, Installation
from vicinal.mpi.placement import Placement
from vicinal.mpi.variables import portable_variables

_OUTER_JOB = ("SLURM_", "PBS_", "LSB_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_")
"""Prefixes of variables by which launchers and MPI libraries take this process for a part of
another job."""

_OPEN_MPI_HANDS_ON = ("OMPI_", "PRTE_", "PMIX_")
"""Prefixes of variables that Open MPI's launcher forwards to all ranks by itself."""

_FOR_RANKS = ("LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "VICINAL_NET_INTERFACE")
"""Other variables that ranks on other hosts need if the variables are set."""

_ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Variables that let root run mpirun, of Open MPI 4 and 5; PRRTE's own variables do not (5.0.11).
"""

_TOPOLOGY = "HWLOC_XMLFILE"
"""Variable that names a file with the machine's topology for hwloc."""


def launcher(
    mpi: Installation,
    placements: Sequence[Placement],
    program: Sequence[str],
    inherited: Mapping[str, str],
    job_paths: JobPaths | None = None,
) -> tuple[list[str], dict[str, str]]:
    """The command line that starts a job from the head of a cluster, and its environment.

    The ranks inherit the environment. It is `inherited` without variables of another job, and with
    the variables that the launcher needs.
    """
    variables = _without_outer_job(mpi, inherited)
    make = {Family.MPICH: _mpich, Family.OPENMPI: _openmpi, Family.INTEL: _intel}[mpi.family]
    return make(mpi, placements, list(program), variables, job_paths or JobPaths())


def host_launcher(
    mpi: Installation,
    placements: Sequence[Placement],
    program: Sequence[str],
    inherited: Mapping[str, str],
    chosen: Mapping[str, str],
    reach: Reach = Reach.SSH,
) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of a job over several hosts; all ranks get the variables
    `chosen`.
    """
    variables = _without_outer_job(mpi, inherited) | dict(chosen)
    if mpi.family is Family.OPENMPI:
        _check_user(variables)
    if reach is Reach.SLURM:
        # srun needs these variables of the allocation. It forwards them to daemons, not to ranks.
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
            # The launchers of other libraries forward all variables.
            handed_on = {*chosen, *_FOR_RANKS, *portable_variables(variables)} & variables.keys()
            for name in sorted(handed_on):
                if not name.startswith(_OPEN_MPI_HANDS_ON):
                    command += ["-x", name]
    return [*command, *program], variables


def _check_user(variables: Mapping[str, str]) -> None:
    """Raise VicinalError if Open MPI's launcher would refuse to run because this process is root's.

    A program that root runs on hosts can damage the hosts, so the user must decide. Nodes of a
    cluster are created for jobs, and every user is root in them.
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
    job_paths: JobPaths,
) -> tuple[list[str], dict[str, str]]:
    command = [str(mpi.launcher), "-launcher", "ssh", "-launcher-exec", job_paths.remote_shell]
    if job_paths.launcher:
        command += ["-localhost", job_paths.launcher]
    command += ["-hosts", _hosts(placements), "-n", str(_ranks(placements))]
    if _TOPOLOGY not in variables:
        # Without this variable the daemons write the machine's topology into files in /tmp for
        # the ranks, and killed daemons leave the files. The ranks find the topology by themselves.
        variables[_TOPOLOGY] = os.devnull
        command += ["env", "-u", _TOPOLOGY]
    return command + program, variables


def _intel(
    mpi: Installation,
    placements: Sequence[Placement],
    program: list[str],
    variables: dict[str, str],
    job_paths: JobPaths,
) -> tuple[list[str], dict[str, str]]:
    variables["I_MPI_ROOT"] = str(mpi.prefix)
    # Nodes share the host's cores: if each node binds by itself, all ranks get the first core.
    variables.setdefault("I_MPI_PIN", "off")
    command = [str(mpi.launcher), "-bootstrap", "ssh", "-bootstrap-exec", job_paths.remote_shell]
    return command + _sets_of_arguments(placements, program), variables


def _sets_of_arguments(placements: Sequence[Placement], program: Sequence[str]) -> list[str]:
    # Intel's launcher reads NODE:RANKS in a list of hosts, but may put more ranks on the first
    # node. So each node gets its own set of arguments; ranks are numbered in the order of the sets.
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
    job_paths: JobPaths,
) -> tuple[list[str], dict[str, str]]:
    command = [str(mpi.launcher), "--host", _hosts(placements), "-n", str(_ranks(placements))]
    # Nodes share the host's cores: if each node binds by itself, all ranks get the first core.
    command += ["--map-by", "slot", "--bind-to", "none"]
    if mpi.starts_with_prrte:
        variables |= {
            "PRTE_MCA_plm": "ssh",
            "PRTE_MCA_plm_ssh_agent": job_paths.remote_shell,
            "PRTE_MCA_prte_tmpdir_base": job_paths.own,
        }
    else:
        variables |= {
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_plm_rsh_agent": job_paths.remote_shell,
            "OMPI_MCA_orte_tmpdir_base": job_paths.own,
        }
    _let_daemons_start_ranks(mpi, variables)
    # The user of a cluster is root in its nodes, possibly in a user namespace.
    variables |= dict.fromkeys(_ALLOW_ROOT, "1")
    return command + program, variables


def _let_daemons_start_ranks(mpi: Installation, variables: dict[str, str]) -> None:
    """Let daemons start ranks themselves instead of in threads, unless the user set the variable.

    If a thread started a rank, the rank's end is lost if it comes before the thread recorded the
    rank's process, and the job hangs. This happened in one of 20 runs of `true` on a busy host with
    Open MPI 5.0.11; PRRTE's pull request 2713 fixes it. PRRTE's daemons use 16 threads for starting
    ranks, ORTE's daemons use several threads from 32 ranks on.
    """
    if mpi.starts_with_prrte:
        variables.setdefault("PRTE_MCA_odls_base_max_threads", "0")
    else:
        variables.setdefault("OMPI_MCA_odls_base_num_threads", "0")


def _hosts(placements: Sequence[Placement]) -> str:
    return ",".join(f"{placement.node}:{placement.ranks}" for placement in placements)


def _ranks(placements: Sequence[Placement]) -> int:
    return sum(placement.ranks for placement in placements)
