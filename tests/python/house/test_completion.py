"""Completions of the command in shells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_support import CHECKOUT


def script(shell: str) -> str:
    """The script that a shell loads."""
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "scripts" / "completion.py"), shell],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("vicinal reg", {"region"}),
        ("vicinal run --path", {"--path", "--paths"}),
        ("vicinal env --mpi mpich4", {"mpich43"}),
    ],
)
def test_bash_completes_commands_options_and_values(line: str, wanted: set[str]) -> None:
    words = line.split()
    # bash calls the function with the line's words, and takes the function's answer from COMPREPLY.
    asked = (
        f"{script('bash')}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        "_vicinal_completion vicinal; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    directory = Path(sys.executable).parent
    answer = subprocess.run(
        ["bash", "-c", asked],
        env=os.environ | {"PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(answer.stdout.split()) == wanted
    assert answer.stderr == ""


def test_fish_and_zsh_have_scripts() -> None:
    assert "complete --command vicinal" in script("fish")
    zsh = script("zsh")
    assert zsh.startswith("#compdef vicinal")
    # Without this, the first completion, which loads the file, has no answer.
    assert zsh.splitlines()[-1] == '_vicinal_completion "$@"'
