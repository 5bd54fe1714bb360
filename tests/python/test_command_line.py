"""Which parts of Vicinal a command loads: programs call most of them, and they have to be quick."""

import subprocess
import sys

import pytest
import typer

from vicinal.cli import PARTS, build_app

LOADED = "import sys; from vicinal.cli import run; run(sys.argv[1:]); print(*sys.modules)"


def registered(command: str | None) -> list[str]:
    group = typer.main.get_command(build_app(command))
    assert isinstance(group, typer.core.TyperGroup)
    return list(group.commands)


def test_each_part_registers_what_is_said_of_it() -> None:
    """Or a command that is there would not be found, or would load all parts."""
    assert set(registered(None)) == {name for names in PARTS.values() for name in names}
    for names in PARTS.values():
        for name in names:
            assert registered(name) == list(names)


@pytest.mark.parametrize("word", ["--help", "nonsense", ""])
def test_what_is_no_command_is_answered_by_all_parts(word: str) -> None:
    assert registered(word) == registered(None)


@pytest.mark.parametrize("command", ["region", "sweep", "functions", "release"])
def test_what_slurm_calls_loads_little(command: str) -> None:
    """The start of each job waits for it."""
    words = [sys.executable, "-c", LOADED, "slurm", command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "vicinal.slurm.commands" in loaded
    assert not loaded & {"numpy", "libvirt", "scipy", "psutil", "asyncio"}
