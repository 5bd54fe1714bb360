"""`vicinal demo` and `vicinal bench`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vicinal.bench.bars import load_bars, select_bars
from vicinal.bench.report import BENCH_LEGEND, bars_table, bench_table, notes
from vicinal.bench.result import write_result
from vicinal.launch.environment import Mpi, checkout
from vicinal.launch.mpi import STANDARD


def register(app: typer.Typer) -> None:
    """Add the commands to `vicinal`."""
    app.command(name="demo")(demo)
    app.command(name="bench")(bench)


def default_output(name: str) -> Path:
    """Where results go: build/<name> of the checkout, or vicinal-<name> right here."""
    tree = checkout()
    return tree / "build" / name if tree else Path(f"vicinal-{name}").resolve()


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
    # Loaded here: the rest of the command line does not wait for the libraries of figures.
    from vicinal.bench.demo import DEFAULT_AMOUNT, DemoPlan, run_demo, show_demo

    plan = DemoPlan(
        mpis=tuple(mpi or STANDARD),
        sizes=chosen or DemoPlan.sizes,
        amount=replace(DEFAULT_AMOUNT, trials=trials, seconds=seconds),
    )
    directory = output or default_output("demo")
    result = run_demo(plan)
    show_demo(result, plan, directory, Console())


def parse_sizes(text: str) -> tuple[int, ...]:
    """Message sizes in bytes out of `8,64,4096`, ascending and each once."""
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise typer.BadParameter(f"{text!r} is no list of sizes in bytes such as 8,65536")
    return tuple(sizes)


def bench(
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this row, or those of a pattern.")
    ] = None,
    list_rows: Annotated[bool, typer.Option("--list", help="List the rows and stop.")] = False,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each side.")] = 9,
    repetitions: Annotated[int, typer.Option(min=1, help="Repetitions in a trial.")] = 3,
    seconds: Annotated[float, typer.Option(min=1e-4, help="Length of a repetition.")] = 0.1,
    output: Annotated[Path | None, typer.Option(help="Directory for the result.")] = None,
) -> None:
    """Measure against the bars: ratios to other paths in one run, on the same cores."""
    bars = select_bars(load_bars(), only)
    console = Console()
    if list_rows:
        console.print(bars_table(bars))
        return
    from vicinal.bench.jobs import Amount
    from vicinal.bench.study import run_study

    result = run_study(bars, Amount(trials, repetitions, seconds))
    path = (output or default_output("bench")) / "result.json"
    console.print(bench_table(result["rows"]))
    console.print(BENCH_LEGEND.format(trials=trials), style="dim", highlight=False)
    write_result(result, "bench", path)
    for note in notes(result):
        console.print(note, markup=False, highlight=False)
    console.print(f"Written: {path}", markup=False, soft_wrap=True, highlight=False)
