"""`vicinal tune run`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.base.directories import MANIFEST, result_folder
from vicinal.base.signals import Ended
from vicinal.base.waiting import told
from vicinal.labs.tune.knobs.host import TunedHost
from vicinal.labs.tune.options import JOURNAL, DryRun, OwnConnection, State, recover_what_was_killed
from vicinal.labs.tune.settings.applier import Applier
from vicinal.labs.tune.settings.own_connection import own_connection
from vicinal.labs.tune.settings.state_directory import STATE
from vicinal.mpi.variables import check_variables

if TYPE_CHECKING:
    from vicinal.labs.tune.measuring.searching import Search

_RESULTS = "tuning"


def run(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC", help="A tuning file, as in docs/reference/tuning-file.md."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the result. Default: a folder named after the search and the time.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue a result: that of --output, or the search's newest one.",
        ),
    ] = False,
    dry_run: DryRun = False,
    own: OwnConnection = False,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Budget in trials, instead of the file's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of random choices, instead of the file's.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Write only warnings and errors.")
    ] = False,
    state: State = STATE,
) -> None:
    """Search for a better setting by experiment: each trial sets the knobs and launches a new run.

    Each trial is kept when it ends: after Ctrl-C, --resume continues. After any end of the search,
    the host has its former setting again; after a kill, the next `vicinal tune` restores it.
    """
    check_variables(os.environ)
    from rich.console import Console

    from vicinal.labs.study.running.view import view_for
    from vicinal.labs.study.workloads import drivers
    from vicinal.labs.tune.measuring.folder import read_manifest
    from vicinal.labs.tune.measuring.searching import check_launches, read_search, run_search

    search = read_search(spec, trials=trials, seed=seed)
    folder = result_folder(search.spec.name, output, _RESULTS, resume=resume)
    if resume:
        before = read_manifest(folder)["asked"]
        trials = before["trials"] if trials is None else trials
        seed = before["seed"] if seed is None else seed
        search = read_search(spec, trials=trials, seed=seed)
    with told("checking the host, and restoring what killed searches left"):
        host = TunedHost()
        applier = Applier(host, state / JOURNAL, {} if own else own_connection(host))
        recover_what_was_killed(applier, state)
    if dry_run:
        check_launches(search, drivers())
        _say_what_would_be(search, applier)
        return
    again = ["vicinal", "tune", "run", str(spec.absolute()), "--resume", "--output", str(folder)]
    again += ["--own-connection"] if own else []
    if state != STATE:
        again += ["--state", str(state)]
    try:
        with view_for(search.study, Console(stderr=True), quiet=quiet) as view:
            run_search(
                search,
                folder,
                applier,
                state,
                resume=resume,
                again=again,
                view=view,
                drivers=drivers(),
            )
    except Ended:
        _say_interrupted(folder, again)
        raise
    from vicinal.labs.tune.explain_command import show_result
    from vicinal.labs.tune.measuring.folder import read_result

    show_result(read_result(folder))
    typer.echo(f"Written: {folder}")


def _say_interrupted(folder: Path, again: list[str]) -> None:
    import shlex

    from vicinal.labs.tune.measuring.folder import TRIALS
    from vicinal.labs.tune.search.trial import read_trials

    trials = folder / TRIALS
    if not (folder / MANIFEST).exists():
        return  # the search had not begun
    kept = len(read_trials(trials)) if trials.exists() else 0
    typer.echo(
        f"vicinal: interrupted; {kept} trials are kept: continue with `{shlex.join(again)}`",
        err=True,
    )


def _say_what_would_be(search: "Search", applier: Applier) -> None:
    """Write what the search would try. Nothing is set, so refusals of drivers are unknown."""
    from vicinal.labs.tune.measuring.searching import check_budget, knobs_of
    from vicinal.labs.tune.search.explain import described_objectives
    from vicinal.labs.tune.search.finding import trials_needed
    from vicinal.labs.tune.search.space import Space

    knobs = knobs_of(search, applier)
    rows = {
        name: tuple(knobs.all[name].values if values is None else values)
        for name, values in search.spec.knobs.items()
    }
    space = Space.of(rows, knobs.present())
    check_budget(space, search.spec)
    plan = search.spec.plan
    for name, row in space.knobs.items():
        now = space.setting(space.present)[name]
        typer.echo(f"{name} is {now}, and the values {', '.join(map(str, row))} would be tried")
    for workload in search.study.workloads:
        typer.echo(f"phase {workload.name}: {workload.driver} {workload.operation}")
    limits = [] if plan.budget.trials is None else [f"{plan.budget.trials} trials"]
    limits += [] if plan.budget.seconds is None else [f"{plan.budget.seconds / 60:g} minutes"]
    typer.echo(
        f"{space.size} settings; {described_objectives(plan)} would be measured in at most "
        f"{' or '.join(limits)}, and at least {trials_needed(space, plan)} trials"
    )
