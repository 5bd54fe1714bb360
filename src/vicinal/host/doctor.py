"""Runs the checks of a host, and shows their findings as text or as a JSON document."""

import difflib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jsonschema
from rich.console import Console
from rich.table import Table
from rich.text import Text

import vicinal
from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.finding import Check, Finding, Status, failed, warned
from vicinal.host.system import Host

_STYLES = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIP: "dim",
}
_STATUS_WIDTH = 4
_NAME_WIDTH = 10
"""Width of the column of names; the longest name of a check has this many letters."""
FORMAT = "vicinal-doctor-1"


@dataclass(frozen=True)
class Examined:
    """A check and its findings."""

    check: Check
    findings: tuple[Finding, ...]


def choose_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Return the checks with these names, in the order of `checks`; all checks if there are no
    names.

    Raises VicinalError for an unknown name.
    """
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise VicinalError(
                f"there is no check {name!r}", f"{hint}`vicinal doctor --list` shows all checks"
            )
    return [check for check in checks if not names or check.name in names]


def examine(host: Host, checks: Sequence[Check]) -> Iterator[Examined]:
    """Run the checks in order. An error in a check becomes a finding, and the next check runs."""
    for check in checks:
        yield Examined(check, tuple(_findings(host, check)))


def _findings(host: Host, check: Check) -> Iterator[Finding]:
    try:
        yield from check.examine(host)
    except VicinalError as error:
        yield failed(error.message, error.remedy)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        yield warned(
            f"the check could not read the host: {prefix}{describe_os_error(error)}",
            "run the check as root",
        )


def count(examined: Sequence[Examined]) -> dict[Status, int]:
    """Return the number of findings of each status."""
    counts = Counter(finding.status for each in examined for finding in each.findings)
    return {status: counts[status] for status in Status}


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """Return all findings as data that is valid against schema/doctor.json.

    Raises jsonschema.ValidationError if a finding's facts do not fit the schema.
    """
    result = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "vicinal": vicinal.__version__,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "summary": {status.value: number for status, number in count(examined).items()},
        "checks": [
            {
                "name": each.check.name,
                "title": each.check.title,
                "findings": [
                    {
                        "status": finding.status.value,
                        "text": finding.text,
                        "remedy": finding.remedy,
                        "facts": dict(finding.facts),
                    }
                    for finding in each.findings
                ],
            }
            for each in examined
        ],
    }
    jsonschema.Draft202012Validator(load_schema()).validate(result)
    return result


def load_schema() -> dict[str, Any]:
    """Return the JSON schema of document()."""
    schema: dict[str, Any] = json.loads(
        (resources.files("vicinal.host") / "schema" / "doctor.json").read_text()
    )
    return schema


def show_report(examined: Iterable[Examined], console: Console) -> list[Examined]:
    """Print each check's findings as soon as it has run, and return all of them.

    On a terminal, lines are wrapped; elsewhere every finding is one line of any length.
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
    """Print the name of each check, and what it examines."""
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
    """A table with the same column widths for each check: `before`, the name, then text."""
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
