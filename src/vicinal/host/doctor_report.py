"""What the checks found, for people: a list for a terminal, and lines for everything else."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vicinal.host.doctor import Examined, count
from vicinal.host.finding import Check, Finding, Status

_STYLES = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIP: "dim",
}
_STATUS_WIDTH = 4
_NAME_WIDTH = 10
"""The longest name of a check has so many letters."""


def show_report(examined: Iterable[Examined], console: Console) -> list[Examined]:
    """Show each as it comes, and return all of them.

    On a terminal lines are wrapped; elsewhere every finding is one line, however long.
    """
    shown = []
    for each in examined:
        if console.is_terminal:
            console.print(_rows(each))
        else:
            for finding in each.findings:
                _line(_plain(each.check, finding), console)
        shown.append(each)
    _line(_summary(shown), console)
    return shown


def show_checks(checks: Sequence[Check], console: Console) -> None:
    """What there is to check."""
    for check in checks:
        if console.is_terminal:
            table = _grid()
            table.add_row(Text(check.name, style="bold"), check.about)
            console.print(table)
        else:
            _line(f"{check.name:{_NAME_WIDTH}}  {check.about}", console)


def _rows(examined: Examined) -> Table:
    table = _grid(_STATUS_WIDTH)
    for number, finding in enumerate(examined.findings):
        bad = finding.status in (Status.WARN, Status.FAIL)
        text = Text(finding.text)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", style="bold" if bad else "dim")
        table.add_row(
            Text(finding.status.upper(), style=_STYLES[finding.status]),
            examined.check.name if number == 0 else "",
            text,
        )
    return table


def _grid(*before: int) -> Table:
    """Columns of the same widths each time: names, and before them others; after them, text."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for width in (*before, _NAME_WIDTH):
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def _plain(check: Check, finding: Finding) -> str:
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    status = finding.status.upper()
    return f"{status:{_STATUS_WIDTH}}  {check.name:{_NAME_WIDTH}}  {finding.text}{remedy}"


def _summary(examined: Sequence[Examined]) -> str:
    counts = count(examined)
    return (
        f"{counts[Status.PASS]} passed, {counts[Status.WARN]} with a warning, "
        f"{counts[Status.FAIL]} failed, {counts[Status.SKIP]} not here"
    )


def _line(text: str, console: Console) -> None:
    console.print(Text(text), soft_wrap=True)
