"""`vicinal study run`: runs a study, or resumes a run."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from vicinal.base.directories import result_folder
from vicinal.base.errors import VicinalError
from vicinal.base.signals import Ended
from vicinal.base.waiting import told
from vicinal.labs.study.result.layout import REPORT
from vicinal.mpi.variables import check_variables

if TYPE_CHECKING:
    from vicinal.labs.study.running.runner import Outcome

_RESULTS = "studies"


def register(study: typer.Typer) -> None:
    """Add the command to `vicinal study`."""
    study.command(name="run")(run)


def run(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Name of a study, or your own study file.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the result; the default is named after study and time.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume a result: measure trials that are missing or failed. Without --output "
            "this resumes the study's newest result.",
        ),
    ] = False,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of blocks, instead of the study's number.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV/WORKLOAD",
            help="Only these environments and workloads; * matches anything. Can be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of all random choices; random by default."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="End a launch that takes longer, as a failed trial. The default is a minute and "
            "ten times the time that the workload states.",
        ),
    ] = None,
    with_osu: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of your OSU micro-benchmarks.")
    ] = None,
    with_imb: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of your Intel MPI Benchmarks.")
    ] = None,
    with_npb: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of your NAS Parallel Benchmarks.")
    ] = None,
    with_graph500: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of your Graph500.")
    ] = None,
    with_hpcc: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your hpcc program, instead of Debian's.")
    ] = None,
    with_lammps: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your LAMMPS program, instead of Debian's.")
    ] = None,
    with_perftest: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of your perftest, if not /usr/bin."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A host for studies of several hosts; localhost is this one. Can be repeated.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")
    ] = False,
) -> int:
    """Run a study: every environment in every block, in random order, each trial a fresh launch.

    Each trial is stored as it ends: after Ctrl-C, --resume continues. Before anything starts, the
    command names all that this machine cannot provide, and leaves it out. The exit status is 1 if a
    trial failed.
    """
    check_variables(os.environ)
    with told("reading the study", quiet=quiet or not sys.stderr.isatty()):
        from vicinal.labs.study.file.adapt import adapt, by_rule
        from vicinal.labs.study.file.host_facts import examine_host, facts_from_json, facts_to_json
        from vicinal.labs.study.file.shipped import load_study, study_names
        from vicinal.labs.study.file.trials import warnings_of
        from vicinal.labs.study.running.plan import selected
        from vicinal.labs.study.running.runner import run_study
        from vicinal.labs.study.running.trial import Limits
        from vicinal.labs.study.running.view import view_for
        from vicinal.labs.study.workloads.driver import Tools

        loaded = load_study(study)
    folder = result_folder(loaded.name, output, _RESULTS, resume=resume)
    asked: dict[str, Any] = {
        "study": study if study in study_names() else str(Path(study).absolute()),
        "trials": trials,
        "only": only or [],
        "timeout": timeout,
        "tools": {
            name: str(path.absolute())
            for name, path in {
                "osu": with_osu,
                "imb": with_imb,
                "npb": with_npb,
                "graph500": with_graph500,
                "hpcc": with_hpcc,
                "lammps": with_lammps,
                "perftest": with_perftest,
            }.items()
            if path is not None
        },
        "host_facts": None,
    }
    if resume:
        if host:
            raise VicinalError(
                "a resumed result keeps the hosts that it was begun with", "leave out --host"
            )
        before = _asked_before(folder)
        tools_before = before.get("tools") or {}
        asked = {name: value or before.get(name) for name, value in asked.items()}
        asked["tools"] = tools_before | (asked["tools"] or {})
    # A run may change what is known of a machine, for example of KVM. The study must not change.
    known = asked["host_facts"]
    with told("examining " + (", ".join(host) if host else "this machine")):
        facts = facts_from_json(known) if known else examine_host(host or ())
    asked["host_facts"] = facts_to_json(facts)
    chosen = selected(adapt(loaded, facts), asked["only"] or [])
    if asked["trials"] is not None:
        design = replace(chosen.design, trials=asked["trials"], most_trials=None)
        chosen = replace(chosen, design=design)
    tools = Tools({name: _there(name, Path(path)) for name, path in asked["tools"].items()})
    console = Console(stderr=True)
    try:
        with view_for(chosen, console, quiet=quiet) as view:
            for why, changes in by_rule(chosen.adaptations).items():
                view.say(f"adapted: {why}:")
                for what in changes:
                    view.say(f"  {what}")
            for warning in warnings_of(chosen):
                view.warn(warning)
            view.say(f"the result goes to {folder}")
            outcome = run_study(
                chosen,
                folder,
                tools,
                resume=resume,
                view=view,
                seed=seed,
                asked=asked,
                limits=Limits(given_seconds=asked["timeout"]),
            )
    except Ended:
        kept = len(list((folder / "trials").glob("*.json")))
        again = f"vicinal study run {study} --resume --output {folder}"
        typer.echo(
            f"vicinal: interrupted; {kept} trials are stored: resume with `{again}`", err=True
        )
        raise
    return _conclude(outcome)


def _conclude(outcome: "Outcome") -> int:
    """Create the report of the stored trials, and print where it is. Returns the exit status."""
    failed = len(outcome.failures)
    typer.echo(
        f"{outcome.trials} trials are in {outcome.folder}"
        + (f", {failed} failed" if failed else "")
    )
    if outcome.trials:
        from vicinal.labs.report.making import make_report

        made = make_report([outcome.folder], outcome.folder / REPORT)
        for warning in made.warnings:
            typer.echo(f"vicinal: note: {warning}", err=True)
        typer.echo(f"Written: {made.page}")
    return int(bool(outcome.failures or outcome.given_up))


def _asked_before(folder: Path) -> dict[str, Any]:
    """The options of the command that began a result."""
    from vicinal.labs.study.result.reading import open_result

    asked: dict[str, Any] = open_result(folder).manifest.get("asked", {})
    return asked


def _there(name: str, path: Path) -> Path:
    if not path.exists():
        raise VicinalError(f"there is no {path}", f"name an existing path with --with-{name}")
    return path
