"""`vicinal guests`: MPI between virtual machines on this host."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vicinal.base.directories import results_directory
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.region_device import RegionDevice
from vicinal.mpi.environment import MessagePath, Mpi
from vicinal.mpi.variables import check_variables


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    guests = typer.Typer(
        help="Run MPI between two virtual machines that are made for it.", no_args_is_help=True
    )
    guests.command(name="demo")(demo)
    guests.command(
        name="run",
        # What follows the program is the program's.
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )(run)
    app.add_typer(guests, name="guests")


def demo(
    mpi: Annotated[list[Mpi] | None, typer.Option(help="Only this MPI; may be repeated.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Starts of each program on each path.")] = 1,
    output: Annotated[Path | None, typer.Option(help="Directory for results.")] = None,
) -> int:
    """Measure a stock MPI between two guests, over their network and over a shared region."""
    check_variables(os.environ)
    directory = results_directory(output, "demo-guests")
    # Loaded here: the rest of the command line does not wait for the libraries of figures.
    from dataclasses import replace

    from vicinal.base.progress import show_steps
    from vicinal.cluster.nodes.vm.pair import GuestPair
    from vicinal.labs.bench.demo import (
        GuestDemoPlan,
        check_guest_demo,
        run_guest_demo,
        write_guest_demo,
    )
    from vicinal.labs.bench.report import guest_table

    plan = GuestDemoPlan()
    plan = replace(plan, mpis=mpi or plan.mpis, amount=replace(plan.amount, trials=trials))
    check_guest_demo(plan)
    with show_steps(len(plan.runs) * trials) as steps:
        began = False

        def step(what: str) -> None:
            nonlocal began
            if began:
                steps.finish()
            began = True
            steps.begin(what)

        with GuestPair(say=steps.begin) as pair:
            result = run_guest_demo(plan, pair, step)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 100)
    console.print(guest_table(result))
    reason = result["guests"]["accelerator_reason"]
    console.print(f"Accelerator: {reason}", markup=False, soft_wrap=True, highlight=False)
    for path in write_guest_demo(result, directory):
        console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)
    return 0


def run(
    program: Annotated[
        list[str], typer.Argument(help="The program and its arguments.", metavar="PROGRAM [ARG]...")
    ],
    ranks: Annotated[int, typer.Option("-n", "-np", "--ranks", min=1, help="Number of ranks.")] = 2,
    mpi: Annotated[
        Mpi | None,
        typer.Option(help="The MPI library; without it the one that the program is linked with."),
    ] = None,
    path: Annotated[
        MessagePath, typer.Option(help="How messages travel: region or network.")
    ] = MessagePath.REGION,
    network: Annotated[
        GuestNetwork,
        typer.Option(
            help="What the guests are: nodes of one host, with one region and virtio cards, or two "
            "hosts, each with its region and a virtual function of an SR-IOV card for verbs. "
            "The card and RDMA are emulated."
        ),
    ] = GuestNetwork.VIRTIO,
    region_device: Annotated[
        RegionDevice,
        typer.Option(
            help="What the guests have the region as: a PCI device, one that can also interrupt "
            "ranks that wait, or a memory module."
        ),
    ] = RegionDevice.IVSHMEM,
    show_paths: Annotated[
        bool, typer.Option("--paths", help="Show afterwards which path each pair of ranks used.")
    ] = False,
) -> int:
    """Run an MPI program across two guests, half of the ranks in each."""
    from vicinal.cluster.nodes.vm.pair import GuestPair
    from vicinal.launch.commands import job_input, wait_for_job
    from vicinal.launch.guest_job import RunningGuestJob, check_guest_job
    from vicinal.mpi.job import Job
    from vicinal.mpi.program import find_program
    from vicinal.region.creation import default_members

    job = Job(
        program=[str(find_program(program[0])), *program[1:]], ranks=ranks, mpi=mpi, path=path
    )
    check_guest_job(job)  # before the guests boot
    members = default_members(ranks)
    with GuestPair(
        members=members, network=network, region_device=region_device, say=_note
    ) as pair:
        return wait_for_job(RunningGuestJob(job, pair, stdin=job_input()), None, show_paths)


def _note(text: str) -> None:
    typer.echo(f"vicinal: {text}", err=True)
