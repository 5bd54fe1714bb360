"""The examples in the documentation do what they say.

An example that is to be run is marked: in Markdown its fence begins with "```sh test", in
scdoc the line before the fence is "; test". It runs under `bash -euo pipefail` in the root
of the checkout, with build/venv/bin first in PATH, and must succeed.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import CHECKOUT

MARKDOWN = re.compile(r"^```sh test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCDOC = re.compile(r"^; test\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"^(?:```sh test.*|; test.*)$", re.MULTILINE)


def documents() -> list[Path]:
    places = ("*.md", "docs/**/*.md", "docs/**/*.scd", "docs/**/*.scd.in")
    return sorted(path for place in places for path in CHECKOUT.glob(place))


def examples(document: Path) -> list[str]:
    form = MARKDOWN if document.suffix == ".md" else SCDOC
    return form.findall(document.read_text())


EXAMPLES = [
    pytest.param(example, id=f"{document.relative_to(CHECKOUT)}-{number}")
    for document in documents()
    for number, example in enumerate(examples(document), 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str) -> None:
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example],
        cwd=CHECKOUT,
        env=os.environ | {"PATH": f"{CHECKOUT / 'build/venv/bin'}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_mark_is_understood() -> None:
    """A misspelled fence must not turn an example off."""
    for document in documents():
        marks = MARKS.findall(document.read_text())
        assert len(marks) == len(examples(document)), document
    assert EXAMPLES


def test_the_manual_names_every_command() -> None:
    manual = (CHECKOUT / "build/man/vicinal.1").read_text().replace("\\", "")
    top = subprocess.run(
        [CHECKOUT / "build/venv/bin/vicinal", "region", "--help"],
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    for command in ("create", "show", "check", "remove"):
        assert command in top.stdout
        assert f"vicinal region {command}" in manual
    assert "@COMMANDS@" not in manual
