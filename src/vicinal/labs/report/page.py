"""The page and the Markdown, by their templates. Whatever comes from outside is escaped there."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

import vicinal
from vicinal.labs.report import numbers
from vicinal.labs.report.across import across
from vicinal.labs.report.content import Drawn, Part
from vicinal.labs.report.palette import ROLES
from vicinal.labs.report.tables import Table
from vicinal.labs.report.tuned import TuningShown

_COMMAND = re.compile(r"`([^`\n]+)`")
"""A command or a name within a note of a study file, as its author marks it."""
_MARKDOWN_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>#|"})


def page(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """One HTML page that needs nothing else; `overlays` are plots of all results together."""
    values = _context(parts, overlays, tuning)
    return _environment().get_template("report.html").render(**values, roles=ROLES)


def markdown(
    parts: Sequence[Part], overlays: Sequence[Drawn] = (), tuning: TuningShown | None = None
) -> str:
    """All of it in Markdown: tables are aligned, for it is read in terminals too."""
    return _environment().get_template("report.md").render(**_context(parts, overlays, tuning))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vicinal.labs.report"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "svg": Markup,  # drawn here, with every text in it escaped
        "markdown_table": _markdown_table,
        "plain": _plain,
        "plain_commands": _plain_commands,
        "commands": _commands,
        "percent": numbers.percent,
        "moment": _moment,
        "sentence": _sentence,
    }
    return environment


def _context(
    parts: Sequence[Part], overlays: Sequence[Drawn], tuning: TuningShown | None
) -> dict[str, Any]:
    return {
        "parts": parts,
        "study": parts[0].summary.study,
        "across": across(parts) if len(parts) > 1 else [],
        "overlays": overlays,
        "tuning": tuning,
        "made": datetime.now(UTC).isoformat(" ", timespec="minutes")[:16],
        "version": vicinal.__version__,
    }


def _sentence(text: str) -> str:
    """With a capital and a full stop, which messages do not have."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _commands(text: str) -> Markup:
    """Text for a page, escaped, with its commands set as such."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))


def _moment(text: str) -> str:
    """`2026-11-23 03:00 UTC`, of what results have."""
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return text
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _plain(text: str) -> str:
    """Text that Markdown takes for text, on one line."""
    return " ".join(str(text).split()).translate(_MARKDOWN_SIGNS)


def _plain_commands(text: str) -> str:
    """The same, with its commands left as Markdown shows them."""
    between = _COMMAND.split(" ".join(text.split()))
    # Of every two parts the second is a command: in one, Markdown takes no sign for its own.
    parts = (
        f"`{part}`" if i % 2 else part.translate(_MARKDOWN_SIGNS) for i, part in enumerate(between)
    )
    return "".join(parts)


def _markdown_table(table: Table) -> str:
    """Aligned columns, numbers to the right."""
    rows = [[_plain(column.title) for column in table.columns]]
    rows += [[_plain(text) for text in row] for row in table.rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            text.rjust(width) if column.number else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        )
        for row in rows
    ]
    rule = " | ".join(
        "-" * (width - 1) + (":" if column.number else "-")
        for width, column in zip(widths, table.columns, strict=True)
    )
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))
