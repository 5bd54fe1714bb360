"""Which parts of Vicinal a command loads: programs call most of them, and they have to be quick."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer

from vicinal.cli import run
from vicinal.command_app import PARTS, build_app
from vicinal.plain_call import PLAIN, plain_call

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


@pytest.mark.parametrize("command", ["region", "sweep", "functions", "lend", "release"])
def test_what_slurm_calls_loads_little(command: str) -> None:
    """The start of each job waits for it."""
    words = [sys.executable, "-c", LOADED, "slurm", command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "vicinal.slurm.commands" in loaded
    assert not loaded & {"numpy", "libvirt", "scipy", "psutil", "asyncio"}


def test_what_slurm_calls_does_not_load_typer(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOADED, "slurm", "sweep", "--directory", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "vicinal.slurm.region_commands" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in ("typer", "rich", "pydantic")}


REGION = ["slurm", "region", "7", "--user", "0", "--directory"]


@pytest.mark.parametrize(
    "words",
    [
        ["slurm"],
        ["slurm", "install"],
        ["slurm", "region"],
        ["slurm", "region", "--help"],
        ["slurm", "region", "7"],
        ["slurm", "region", "0", "--user", "0"],
        ["slurm", "region", "seven", "--user", "0"],
        ["slurm", "region", "7", "8", "--user", "0"],
        ["slurm", "region", "7", "--user", "-1"],
        ["slurm", "region", "7", "--user"],
        ["slurm", "region", "7", "--user", "0", "--user", "1"],
        ["slurm", "region", "7", "--user", "0", "--nothing"],
        ["slurm", "region", "7", "--user", "0", "-x"],
        ["slurm", "region", "7", "--user", "0", "--tasks", "0"],
        ["slurm", "region", "7", "--user", "0", "--tasks", "2.5"],
        ["slurm", "region", "7", "--user", "0", "--", "8"],
    ],
    ids=" ".join,
)
def test_what_is_not_in_order_is_typer_s_to_say(words: list[str]) -> None:
    assert plain_call(words) is None


@pytest.mark.parametrize(("command", "module"), PLAIN.items(), ids=str)
def test_typer_reads_the_same_parameters(command: tuple[str, str], module: str) -> None:
    """All of them, with the same defaults: the functions are those of the plain calls."""
    group = typer.main.get_command(build_app(command[0]))
    assert isinstance(group, typer.core.TyperGroup)
    (slurm,) = group.commands.values()
    assert isinstance(slurm, typer.core.TyperGroup)
    shown = {each.name: each for each in slurm.commands[command[1]].params}
    function = getattr(importlib.import_module(module), command[1])
    parameters = inspect.signature(function).parameters
    assert list(shown) == list(parameters)
    for name, each in parameters.items():
        required = each.default is inspect.Parameter.empty
        assert shown[name].required == required
        if not required:
            assert shown[name].default == each.default
        assert getattr(shown[name], "help", None) == get_args(each.annotation)[1].help


def test_both_ways_make_the_same_region(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    more = ["--members=3", "--section-size", "262144", "--heap", "4096", "--max-size", "99999999"]
    assert run([*REGION, str(one), *more]) == 0
    monkeypatch.setattr("vicinal.cli.plain_call", lambda _: None)
    assert run([*REGION, str(other), *more]) == 0
    assert capsys.readouterr().out == f"file:{one}/job-7\nfile:{other}/job-7\n"
    assert (one / "job-7").stat().st_size == (other / "job-7").stat().st_size > 3 * 262144


def test_what_fails_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*REGION, str(tmp_path / "there"), "--max-size", "1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vicinal: error: job 7: a region of")
