"""Which modules a command loads: programs call most commands, so commands have to start fast."""

import importlib
import importlib.util
import inspect
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer
from command_support import CHECKOUT

from vicinal.cli import run
from vicinal.cluster.vm.libvirt.uri import default_uri, is_own
from vicinal.command_app import PARTS, build_app
from vicinal.plain_commands import PLAIN, plain_call

LOADED = "import sys; from vicinal.cli import run; run(sys.argv[1:]); print(*sys.modules)"
HEAVY = {
    *("numpy", "scipy", "matplotlib", "pyarrow", "pandas", "cryptography", "jinja2"),
    *("libvirt", "psutil", "prometheus_client", "pyroute2", "jsonschema", "asyncio"),
}
"""Libraries that take longer to load than the commands below take to run."""
COMMAND_LINE = {"typer", "pydantic"}
COMPILED = CHECKOUT / "build/.compiled"
"""The time when scripts/setup last compiled all modules."""


def loaded_by(*words: str, state: Path | None = None) -> set[str]:
    """The names of the modules that a command loads."""
    environment = os.environ | ({} if state is None else {"XDG_STATE_HOME": str(state)})
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def registered(command: str | None) -> list[str]:
    group = typer.main.get_command(build_app(command))
    assert isinstance(group, typer.core.TyperGroup)
    return [name for name, each in group.commands.items() if not each.hidden]


def test_each_part_registers_what_is_said_of_it() -> None:
    """Otherwise an existing command is not found, or loads all parts."""
    assert set(registered(None)) == {name for names in PARTS.values() for name in names}
    for names in PARTS.values():
        for name in names:
            assert registered(name) == list(names)


def test_the_former_name_of_vf_is_a_hidden_alias() -> None:
    group = typer.main.get_command(build_app("functions"))
    assert isinstance(group, typer.core.TyperGroup)
    alias, current = group.commands["functions"], group.commands["vf"]
    assert isinstance(alias, typer.core.TyperGroup)
    assert isinstance(current, typer.core.TyperGroup)
    assert alias.hidden
    assert list(alias.commands) == list(current.commands)


@pytest.mark.parametrize("word", ["--help", "nonsense", ""])
def test_what_is_no_command_is_answered_by_all_parts(word: str) -> None:
    assert registered(word) == registered(None)


@pytest.mark.parametrize("words", [[], ["region"], ["study"]])
def test_a_command_that_needs_another_shows_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr()
    assert f"Usage: {' '.join(['vicinal', *words])} [OPTIONS] COMMAND" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "--mpi", "opnmpi"], '--mpi is "opnmpi", and must be mpich, '),
        (["run", "--mpi", "opnmpi"], "or intel: did you mean openmpi?"),
        (["run", "-n", "two"], '/--ranks is "two", and must be a whole number'),
        (["run", "-n", "0"], '/--ranks is "0", and must be 1 or more'),
        (["down", "--forget"], "option '--forget' requires an argument: see `vicinal down --help`"),
        (["migrate", "a", "b", "--timeout", "x"], '--timeout is "x", and must be a number'),
        (["slurm", "region", "0", "--user", "0"], 'job is "0", and must be 1 or more'),
    ],
)
def test_a_wrong_word_is_quoted_with_what_may_be_there(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pydantic's own words ("Value error", "Input should be") must not reach users."""
    assert run(words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "alue error" not in said
    assert "Input should" not in said
    assert said.rstrip().endswith("--help`")
    assert len(said.splitlines()) == 1


def test_the_version_loads_nothing_else() -> None:
    loaded = loaded_by("--version")
    ours = {name for name in loaded if name.partition(".")[0] == "vicinal"}
    base = {"vicinal.base", "vicinal.base.errors", "vicinal.base.signals"}
    assert ours == {"vicinal", "vicinal.cli", *base}
    assert not loaded & (HEAVY | COMMAND_LINE | {"rich", "ruamel.yaml", "inspect", "subprocess"})


def test_the_version_is_the_same_from_typer(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["--version", "plan"]):
        assert run(words) == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other


def test_the_list_of_studies_loads_no_library_but_rich(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_own(default_uri()):
        # Otherwise libvirt's library asks the user's session daemon or the system's libvirt.
        monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu+ssh://elsewhere/system")
    # `make` runs this command. It does nothing unless a study has changed.
    subprocess.run([sys.executable, "-m", "vicinal.labs.study.file.shipped"], check=True)
    loaded = loaded_by("study", "list", state=tmp_path)
    assert {"vicinal.labs.study_commands.list_command", "rich"} <= loaded
    assert not loaded & (HEAVY | COMMAND_LINE | {"ruamel.yaml"})


def test_a_plan_loads_no_library_but_yaml_s(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("name: solar\nnodes: [{name: node, count: 2}]\n")
    loaded = loaded_by("plan", str(file), state=tmp_path)
    assert {"vicinal.cluster.plan_command", "ruamel.yaml"} <= loaded
    assert not loaded & (HEAVY | COMMAND_LINE | {"rich", "vicinal.cluster.hosts.connection"})


def test_commands_load_numpy_only_to_compute() -> None:
    parts = ", ".join(PARTS)
    script = f"import sys, {parts}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing = HEAVY - {"psutil"}  # commands about processes load psutil
    assert not set(done.stdout.split()) & missing


def modules_of(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        found = importlib.util.find_spec(name)
        assert found is not None
        for folder in found.submodule_search_locations or ():
            yield from Path(folder).rglob("*.py")


def is_compiled(module: Path) -> bool:
    """Whether a module's byte code matches its text by time and size, as Python checks it."""
    code = Path(importlib.util.cache_from_source(str(module)))
    if not code.is_file():
        return False
    magic, flags, time, size = struct.unpack("<4sIII", code.read_bytes()[:16])
    now = module.stat()
    same = (int(now.st_mtime) & 0xFFFFFFFF, now.st_size & 0xFFFFFFFF) == (time, size)
    return bool(magic == importlib.util.MAGIC_NUMBER and flags == 0 and same)


def test_make_compiles_each_module() -> None:
    """With PYTHONDONTWRITEBYTECODE, each start would compile all modules that it loads."""
    made = COMPILED.stat().st_mtime
    modules = [each for each in modules_of(["vicinal"]) if "appliance/root" not in str(each)]
    unchanged = [each for each in modules if each.stat().st_mtime < made]
    assert modules
    assert [str(each) for each in unchanged if not is_compiled(each)] == []


def test_demo_bench_and_what_the_tuner_found_load_no_scipy_stats() -> None:
    """Loading scipy.stats takes a second."""
    bench = "vicinal.labs.bench.demo, vicinal.labs.bench.bench_report"
    parts = f"{bench}, vicinal.labs.tune.search.confirming"
    words = [sys.executable, "-c", f"import sys, {parts}; print(*sys.modules)"]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert "vicinal.labs.statistics.signed_rank" in loaded
    assert "scipy.stats" not in loaded


def test_the_appliance_s_own_modules_are_not_compiled() -> None:
    """The build copies all files of that folder into the appliance."""
    inside = CHECKOUT / "src/vicinal/cluster/vm/image/appliance/root"
    assert list(inside.rglob("*.py"))
    assert not list(inside.rglob("*.pyc"))


def test_installed_packages_are_compiled() -> None:
    modules = list(modules_of(["typer", "rich", "numpy", "ruamel.yaml", "jsonschema"]))
    assert len(modules) > 500
    assert [str(each) for each in modules if not is_compiled(each)] == []


@pytest.mark.parametrize("command", ["region", "sweep", "vfs", "grant", "release"])
def test_what_slurm_calls_loads_little(command: str) -> None:
    """The start of each job waits for these commands."""
    words = [sys.executable, "-c", LOADED, "slurm", command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "vicinal.integrations.slurm.commands" in loaded
    assert not loaded & {"numpy", "libvirt", "scipy", "psutil", "asyncio"}


def test_what_slurm_calls_does_not_load_typer(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOADED, "slurm", "sweep", "--directory", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "vicinal.integrations.slurm.plugin_commands" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in ("typer", "rich", "pydantic")}


REGION = ["slurm", "region", "7", "--user", str(os.geteuid()), "--directory"]


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
        ["plan", "--help"],
        ["plan", "one.yaml", "other.yaml"],
        ["plan", "--file", "one.yaml"],
        ["study", "list", "quick"],
        ["study", "list", "--json=1"],
        ["study", "list", "--json", "--json"],
        ["study", "list", "--as-json"],
        ["study", "list", "--host", "localhost"],
    ],
    ids=" ".join,
)
def test_what_is_not_in_order_is_typer_s_to_say(words: list[str]) -> None:
    assert plain_call(words) is None


@pytest.mark.parametrize(("command", "target"), PLAIN.items(), ids=str)
def test_typer_reads_the_same_parameters(command: tuple[str, ...], target: str) -> None:
    """Typer's parameters and defaults are those of the functions that plain calls use."""
    found: object = typer.main.get_command(build_app(command[0]))
    for word in command:
        assert isinstance(found, typer.core.TyperGroup)
        found = found.commands[word]
    assert isinstance(found, typer.core.TyperCommand)
    shown = {each.name: each for each in found.params}
    module, _, name = target.partition(":")
    vf = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(vf).parameters
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
    monkeypatch.setattr("vicinal.plain_commands.plain_call", lambda _: None)
    assert run([*REGION, str(other), *more]) == 0
    assert capsys.readouterr().out == f"file:{one}/job-7\nfile:{other}/job-7\n"
    assert (one / "job-7").stat().st_size == (other / "job-7").stat().st_size > 3 * 262144


def test_what_fails_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*REGION, str(tmp_path / "there"), "--max-size", "1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vicinal: error: job 7: a region of")


def test_both_ways_show_the_same_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "cluster.yaml"
    file.write_text("name: solar\nnodes: [{name: node, count: 2}]\n")
    assert run(["plan", str(file)]) == 2
    one = capsys.readouterr().out
    monkeypatch.setattr("vicinal.plain_commands.plain_call", lambda _: None)
    assert run(["plan", str(file)]) == 2
    assert capsys.readouterr().out == one
    assert "+ node/node1  (it does not exist)" in one.splitlines()


def test_a_plain_call_takes_options_without_values() -> None:
    assert plain_call(["study", "list"]) is not None
    assert plain_call(["study", "list", "--json"]) is not None
    assert plain_call(["plan"]) is not None


@pytest.mark.parametrize("words", [("run",), ("guests", "run")], ids=" ".join)
def test_ranks_are_said_as_to_mpirun(words: tuple[str, ...]) -> None:
    found: object = typer.main.get_command(build_app(words[0]))
    for word in words:
        assert isinstance(found, typer.core.TyperGroup)
        found = found.commands[word]
    assert isinstance(found, typer.core.TyperCommand)
    (ranks,) = [each for each in found.params if "--ranks" in each.opts]
    assert {"-n", "-np"} <= set(ranks.opts)
