"""Shows studies on the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal.labs.study.file.adapt import Fit, by_rule, fit_of
from vicinal.labs.study.file.model import Environment, Published, Study, Workload
from vicinal.labs.study.file.reading_sizes import show, show_all
from vicinal.labs.study.file.trials import warnings_of

_FITS = {
    Fit.WHOLE: "as it is",
    Fit.ADAPTED: "adapted",
    Fit.IN_PART: "in part",
    Fit.NOT: "not at all",
}
_WIDTH = 100
"""Columns of output that is not a terminal."""


def show_list(studies: Iterable[tuple[Study, Fit]]) -> None:
    """Show a line for each study, with how much of it this machine can run."""
    table = table_of("name", "source", "here", "what")
    for study, fit in studies:
        table.add_row(study.name, escape(study.source), fit.value, escape(study.title))
    console_of().print(table)


def show_study(study: Study, adapted: Study) -> None:
    """Show a study, and what differs on this machine."""
    console = console_of()
    console.print(f"[bold]{study.name}[/]: {escape(study.title)} ({escape(study.source)})")
    console.print(escape(study.question))
    for part in (_environments(study.environments), _workloads(study.workloads)):
        console.print()
        console.print(part)
    console.print()
    _show_design(console, study)
    if study.published:
        console.print()
        console.print(_published(study))
    for note in study.notes:
        console.print()
        console.print(f"Note: {escape(note)}")
    console.print()
    _show_here(console, study, adapted)


def _show_here(console: Console, study: Study, adapted: Study) -> None:
    """Show this machine's adaptations, grouped by rule, and what the machine cannot provide."""
    console.print(f"On this machine it can be run [bold]{_FITS[fit_of(adapted)]}[/].")
    for name, why in adapted.unavailable.items():
        console.print(f"  - not {name}: {escape(why)}")
    for why, changes in by_rule(adapted.adaptations).items():
        console.print(f"  {escape(why)}:")
        for what in changes:
            console.print(f"    {escape(what)}")
    if fit_of(adapted) is not Fit.NOT:
        console.print(_time(adapted))
    for note in adapted.notes[len(study.notes) :]:
        console.print(f"Note: {escape(note)}")
    for warning in warnings_of(adapted):
        console.print(f"Warning: {escape(warning)}")


def _time(study: Study) -> str:
    """The number of launches on this machine, and the time that they are expected to take without
    nodes.
    """
    # `list` does not need these modules, which load NumPy.
    from vicinal.labs.study.running.plan import Plan
    from vicinal.labs.study.running.ready import left_out
    from vicinal.labs.study.running.trial import expected_seconds
    from vicinal.labs.study.running.view import duration

    block = Plan(study, 0, left_out(study, study.unavailable)).block(1)
    seconds = sum(expected_seconds(study.workload(each.workload)) for each in block)
    blocks = study.design.trials
    said = f"{len(block) * blocks} launches in {blocks} blocks: about {duration(seconds * blocks)}"
    most = study.design.most_trials
    if most is not None and most > blocks:
        said += f", or up to {most} blocks if values spread: {duration(seconds * most)}"
    return f"{said}."


def console_of() -> Console:
    """The console for studies; wide enough for tables if the output is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    return console


def table_of(*columns: str) -> Table:
    """A table without lines, in which long words wrap."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _environments(environments: Iterable[Environment]) -> Table:
    table = table_of("environment", "what", "nodes", "MPI", "messages")
    for each in environments:
        stands = f" (stands in for {each.stands_for})" if each.stands_for else ""
        table.add_row(
            each.name,
            escape(each.title + stands),
            ", ".join(_nodes(each)),
            each.mpi.full_name,
            _messages(each),
        )
    return table


def _nodes(environment: Environment) -> Iterator[str]:
    for group in environment.cluster["nodes"]:
        yield f"{group.get('count', 1)} {group.get('backend', 'container')}"
    hosts = environment.cluster.get("hosts", ())
    if hosts:
        yield f"on {len(hosts)} hosts"


def _messages(environment: Environment) -> str:
    extras = [environment.path.value]
    if environment.progress is not None:
        extras.append(environment.progress.value)
    if not environment.cma:
        extras.append("no CMA")
    return ", ".join(extras + [f"{key}={value}" for key, value in environment.variables.items()])


def _workloads(workloads: Iterable[Workload]) -> Table:
    table = table_of("workload", "what", "program", "ranks", "sizes")
    for each in workloads:
        options = ", ".join(f"{key}={value}" for key, value in each.options.items())
        program = f"{each.driver} {each.operation}" + (f" ({options})" if options else "")
        table.add_row(
            each.name, escape(each.title), escape(program), str(each.ranks), show_all(each.sizes)
        )
    return table


def _show_design(console: Console, study: Study) -> None:
    design = study.design
    trials = str(design.trials)
    if design.most_trials is not None:
        trials += f" to {design.most_trials}"
    console.print(f"{trials} trials; {design.correction.value}, alpha {design.alpha:g}; compares")
    for each in design.comparisons:
        title = f": {escape(each.title)}" if each.title else ""
        console.print(f"  {each.base} with {each.test}{title}")


def _published(study: Study) -> Table:
    """The published figures, one line for the figures of one kind."""
    table = table_of("published", "workload", "of", "figures")

    def kind(figure: Published) -> tuple[str, ...]:
        whose = figure.environment or " with ".join(figure.comparison or ())
        return figure.source, figure.workload, f"{whose}, {figure.statistic.value}", figure.unit

    for (source, workload, whose, unit), those in groupby(study.published, kind):
        table.add_row(escape(source), workload, whose, f"{_figures(list(those))} {unit}")
    return table


def _figures(figures: Sequence[Published]) -> str:
    shown = []
    for each in figures:
        size = f"{show(each.size)}: " if each.size is not None else ""
        note = f" ({each.note})" if each.note else ""
        shown.append(escape(f"{size}{each.value:g}{note}"))
    return ", ".join(shown)
