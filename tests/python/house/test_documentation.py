"""The examples in the documentation do what they say.

A mark makes an example a test: in Markdown, its fence begins with "```sh test"; in scdoc, the line
before the fence is "; test". The example runs under `bash -euo pipefail` in the root of the
checkout, with build/venv/bin first in PATH, and must succeed. Regions get names of their own, so a
region left by a killed example does not disturb later runs.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from checks.leftovers import new_shared_path
from command_support import CHECKOUT

from vicinal.command_app import build_app

MARKDOWN = re.compile(r"^```sh test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCDOC = re.compile(r"^; test\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REGIONS = re.compile(r"/dev/shm/vicinal-(?=[a-z])")
MARKS = re.compile(r"^(?:```sh test.*|; test.*)$", re.MULTILINE)


def documents() -> list[Path]:
    patterns = ("*.md", "docs/**/*.md", "docs/**/*.scd", "docs/**/*.scd.in")
    return sorted(path for pattern in patterns for path in CHECKOUT.glob(pattern))


def examples(document: Path) -> list[str]:
    form = MARKDOWN if document.suffix == ".md" else SCDOC
    return form.findall(document.read_text())


LONG = {
    "docs/explanation/statistics.md": pytest.mark.long,
    "docs/how-to/studies.md": pytest.mark.long,
}
"""Documents whose commands load the libraries of studies; tests in the common check cover them."""

EXAMPLES = [
    pytest.param(
        example,
        id=f"{document.relative_to(CHECKOUT)}-{number}",
        marks=LONG.get(str(document.relative_to(CHECKOUT)), ()),
    )
    for document in documents()
    for number, example in enumerate(examples(document), 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str) -> None:
    own = REGIONS.sub(f"{new_shared_path()}_", example)
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", own],
        cwd=CHECKOUT,
        env=os.environ | {"PATH": f"{CHECKOUT / 'build/venv/bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        # A job that hangs must not run on beside later tests.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output


def test_every_mark_is_understood() -> None:
    """A misspelled fence must not turn an example off."""
    for document in documents():
        marks = MARKS.findall(document.read_text())
        assert len(marks) == len(examples(document)), document
    assert EXAMPLES


def commands(group: Any, path: str = "vicinal") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_the_manual_names_every_command_and_option() -> None:
    manual = (CHECKOUT / "build/man/vicinal.1").read_text().replace("\\", "")
    assert "@COMMANDS@" not in manual
    found = dict(commands(typer.main.get_command(build_app())))
    assert {"vicinal run", "vicinal region create", "vicinal guests demo"} <= set(found)
    for command, entry in found.items():
        _, _, rest = manual.partition(f"\n.SS {command} ")
        section = rest.partition("\n.S")[0]
        assert section, command
        for parameter in entry.params:
            for name in (*parameter.opts, *parameter.secondary_opts):
                if name.startswith("-") and name not in ("--help", "-h"):
                    assert f"fB{name}fR" in section, (command, name)
