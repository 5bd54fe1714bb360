"""`vicinal demo` and `vicinal bench`.

The commands load their libraries themselves: statistics, figures and schemas take a second of
processor time to load, for which other commands should not wait.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vicinal.base.directories import results_directory
from vicinal.base.signals import Ended
from vicinal.mpi.environment import Mpi
from vicinal.mpi.libraries import standard_here
from vicinal.mpi.variables import check_variables

_TABLE_WIDTH = 120


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.command(name="demo")(demo)
    app.command(name="bench")(bench)


def demo(
    mpi: Annotated[list[Mpi] | None, typer.Option(help="Only this MPI; may be repeated.")] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="BYTES,...", help="Message sizes; default 1 to 4 MiB.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Starts of each program on each path.")] = 3,
    seconds: Annotated[float, typer.Option(min=1e-4, help="Length of a repetition.")] = 0.02,
    output: Annotated[Path | None, typer.Option(help="Directory for results.")] = None,
) -> None:
    """Show MPI between two isolated nodes over the network and over a shared region."""
    chosen = None if sizes is None else parse_sizes(sizes)
    check_variables(os.environ)
    directory = results_directory(output, "demo")
    from vicinal.labs.bench.demo import DEFAULT_AMOUNT, DemoPlan, run_demo, show_demo

    plan = DemoPlan(
        mpis=tuple(mpi or standard_here()),
        sizes=chosen or DemoPlan.sizes,
        amount=replace(DEFAULT_AMOUNT, trials=trials, seconds=seconds),
    )
    result = run_demo(plan)
    show_demo(result, plan, directory, Console())


def parse_sizes(text: str) -> tuple[int, ...]:
    """The message sizes in bytes of a text such as `8,64,4096`, ascending and without repeats."""
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise typer.BadParameter(f"{text!r} is no list of sizes in bytes such as 8,65536")
    return tuple(sizes)


def bench(
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this row or group, or those of a pattern."),
    ] = None,
    issue: Annotated[int | None, typer.Option(min=1, help="Only rows of this issue.")] = None,
    list_rows: Annotated[bool, typer.Option("--list", help="List the rows and stop.")] = False,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each side.")] = 9,
    repetitions: Annotated[int, typer.Option(min=1, help="Repetitions in a trial.")] = 3,
    seconds: Annotated[float, typer.Option(min=1e-4, help="Length of a repetition.")] = 0.05,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Run ranks before everything else on their cores.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what an earlier run has finished.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Directory for the result.")] = None,
) -> int:
    """Measure against the bars: ratios to other paths in one run, on the same cores.

    A bar that is missed is no error. Something that went wrong, so that a row or one of those it
    is compared with could not be measured, is one: the exit status is 1 then, and --resume
    measures that group again.
    """
    from vicinal.labs.bench.bars import load_groups, select_groups
    from vicinal.labs.bench.bench_report import bars_table, show_bench

    groups = select_groups(load_groups(), only, issue)
    console = _wide_console()
    if list_rows:
        console.print(bars_table(groups))
        return 0
    check_variables(os.environ)
    directory = results_directory(output, "bench")
    from vicinal.labs.bench.jobs import Amount
    from vicinal.labs.bench.result import write_result
    from vicinal.labs.bench.running import BenchPlan, run_bench

    amount = Amount(trials, repetitions, seconds)
    plan = BenchPlan(groups, amount, directory / "partial", resume=resume, realtime=realtime)
    try:
        result = run_bench(plan)
    except Ended:
        kept = len(list(plan.partial.glob("*.json")))
        message = f"interrupted; {kept} of {len(groups)} groups are kept: go on with --resume"
        typer.echo(f"vicinal: {message}", err=True)
        raise
    show_bench(result, console)
    path = directory / "result.json"
    write_result(result, "bench", path)
    console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)
    return int(any(row.get("failed") for row in result["rows"]))


def _wide_console() -> Console:
    """A console as wide as the tables, so that logs and files contain them whole."""
    console = Console()
    return console if console.width >= _TABLE_WIDTH else Console(width=_TABLE_WIDTH)
