"""The map of suites: each test is in one, each suite has its turn, and changes select suites."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import checks.__main__ as command
import psutil
import pytest
from checks import changes, plan, records, rotation
from checks.running import run_suites
from checks.suites import MAP, CheckError, Suite, choose, is_below, read_suites
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS

LONG = re.compile(r"mark\.long|long_unless\(|square\(|ONE_MPI")
"""Marks of a long test, given directly or through launch_support."""
GIT = {
    **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "a@example.org" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def suites() -> list[Suite]:
    return read_suites(CHECKOUT)


def suite(name: str, seconds: int = 60, **more: object) -> Suite:
    row = {"tier": "long", "folders": (), "mark": "", "workers": 0, "commands": (("true",),)}
    row |= {"sources": (), "imports": False, "low_priority": False}
    return Suite(name=name, seconds=seconds, **row | more)  # type: ignore[arg-type]


def folders_of(tier: str, mark: str) -> set[str]:
    return {
        folder
        for each in suites()
        if each.tier == tier and each.mark in (mark, "")
        for folder in each.folders
    }


def test_each_file_of_tests_is_in_a_suite() -> None:
    named = {folder for each in suites() for folder in each.folders}
    named |= {word for each in suites() for command in each.commands for word in command}
    files = [path.relative_to(CHECKOUT) for path in (CHECKOUT / "tests").rglob("test_*.py")]
    assert files
    assert [file for file in files if not any(is_below(str(file), each) for each in named)] == []


def test_tests_that_are_long_are_in_a_long_suite_and_others_in_the_common_one() -> None:
    """Each long suite has a test, and each folder with a long mark belongs to a long suite."""
    marked = {
        str(path.parent.relative_to(CHECKOUT))
        for path in (CHECKOUT / "tests/python").rglob("test_*.py")
        if LONG.search(path.read_text()) and path != Path(__file__)
    }
    assert marked <= folders_of("long", "long")
    for each in suites():
        if each.mark == "long":
            assert marked & set(each.folders), each.name
    tested = {str(path.parent) for path in Path("tests/python").rglob("test_*.py")}
    assert tested <= folders_of("common", "not long")


def test_each_folder_of_unit_tests_is_built() -> None:
    """tests/meson.build lists each folder that has its own meson.build."""
    text = (CHECKOUT / "tests/meson.build").read_text()
    for file in (CHECKOUT / "tests").glob("*/meson.build"):
        assert f"subdir('{file.parent.name}')" in text


@pytest.mark.parametrize("seed", range(20))
def test_each_long_suite_has_its_turn_in_as_many_landings_as_there_are_slots(seed: int) -> None:
    """This holds for any number of commits in a landing, and for any time between landings."""
    drawn = random.Random(seed)
    long = [each for each in suites() if each.tier == "long"]
    times, now, ran = [0], 0, set()
    for _ in range(drawn.randrange(5)):  # earlier landings
        now += 3600
        times.append(now)
    for _ in range(rotation.SLOTS):
        now += drawn.randrange(41, 2000) * 60  # CI, and the work on the next change
        for pause in [0] + [drawn.randrange(1, 40 * 60) for _ in range(drawn.randrange(30))]:
            now += pause
            times.append(now)
        ran |= {each.name for each in rotation.turn(long, rotation.landings(times))}
    assert ran == {each.name for each in long}


def test_the_turn_of_a_landing_fits_into_ci() -> None:
    """The bound includes the common suites; set-up and build take up to three minutes more."""
    common = sum(
        each.seconds for each in suites() if each.tier == "common" and not each.low_priority
    )
    slots = rotation.slots(each for each in suites() if each.tier == "long")
    assert max(sum(each.seconds for each in slot) for slot in slots) + common < 35 * 60


def test_a_change_selects_by_source_by_import_and_if_unknown_all() -> None:
    near = suite("near", sources=("slurm",))
    assert changes.reason_of(near, {"slurm/a.c"}, set()) == "slurm/a.c changed"
    assert changes.reason_of(near, {"slurmd/a.c", "x"}, set()) == ""
    assert changes.reason_of(near, {"x.py"}, {"x.py"}) == "x.py changed, which its tests import"
    assert changes.unknown({"slurm/a.c", "new/a.c"}, [near]) == ["new/a.c"]


def test_nothing_that_is_in_the_tree_is_unknown() -> None:
    """Otherwise each change of an unknown file selects everything."""
    everything = changes.changed_files(CHECKOUT, None)
    known = suites()
    assert changes.unknown(everything, known) == []


def test_imports_are_followed_through_support_and_modules() -> None:
    files = changes.Imports(CHECKOUT).files_of(["tests/python/slurm"])
    assert "src/vicinal/integrations/slurm/job_vfs.py" in files, "which the tests import"
    assert "src/vicinal/host/vf/infiniband.py" in files, "which a module imports"
    assert "src/vicinal/launch/running.py" in files, (
        "which a module of tests/python/support imports"
    )
    assert "src/vicinal/labs/tune/profile.py" not in files


def repository(path: Path) -> Path:
    """A repository with an old commit and a new one."""
    for name, when in (("old", "2020-01-01T00:00:00Z"), ("new", None)):
        dated = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when} if when else {}
        file = path / name / "file"
        file.parent.mkdir()
        file.write_text(name)
        for words in (["init", "-q", "."], ["add", "."], ["commit", "-qm", name]):
            subprocess.run(["git", *words], cwd=path, env=os.environ | GIT | dated, check=True)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    return repository(tmp_path)


def test_what_changed_is_what_is_young_and_what_is_not_committed(tree: Path) -> None:
    base = changes.base_of(tree)
    assert changes.changed_files(tree, base) == {"new/file"}
    (tree / "old/file").write_text("more")
    (tree / "untracked").touch()
    assert changes.changed_files(tree, base) == {"new/file", "old/file", "untracked"}
    assert changes.changed_files(tree, None) == {"new/file", "old/file", "untracked"}
    assert changes.base_of(tree, hours=24 * 365 * 20) is None


def planned(tree: Path, known: list[Suite], spent: float = 0) -> tuple[list[str], list[str]]:
    made = plan.make_plan(tree, known, changes.base_of(tree), spent)
    return (
        [f"{each.suite.name}: {each.why}" for each in made.run],
        [f"{each.suite.name}: {each.why}" for each in made.left],
    )


def test_a_plan_says_what_runs_and_what_is_left_out(tree: Path) -> None:
    budget = plan.BUDGET_SECONDS
    # With `near` and `far`, there is one more suite than slots: these two share a slot.
    filler = [suite(f"filler{number}", 3000) for number in range(rotation.SLOTS - 1)]
    landing = rotation.count_landings(tree)
    turn = rotation.turn([*filler], landing)[0]
    run, left = planned(tree, [*filler, suite("near", 10, sources=("new",)), suite("far", 10)])
    assert run == [
        f"{turn.name}: its turn in landing {landing}",
        "near: new/file changed",
    ] or run == [f"{turn.name}: its turn in landing {landing}"]
    assert "far: nothing near it changed, and it is not its turn" in left
    near = [suite("short", 10, sources=("new",)), suite("length", budget, sources=("new",))]
    run, left = planned(tree, near, spent=20)
    assert [
        each for each in (*run, *left) if "length" in each and "does not fit, by" in each
    ] or any("length: its turn" in each for each in run)


def test_suites_that_no_longer_fit_are_left_out_but_those_whose_turn_it_is(tree: Path) -> None:
    near = plan.Choice(suite("near", 10), "new/file changed")
    assert plan.still_fits(near, plan.BUDGET_SECONDS - 10)
    assert not plan.still_fits(near, plan.BUDGET_SECONDS - 9)
    turn = plan.Choice(near.suite, "", is_turn=True)
    assert plan.still_fits(turn, plan.TURN_SECONDS - 10)
    assert not plan.still_fits(turn, plan.TURN_SECONDS - 9)
    made = plan.make_plan(tree, [suite(str(number)) for number in range(rotation.SLOTS)], None, 0)
    assert [each.is_turn for each in made.run].count(True) == 1


def test_an_unknown_path_selects_all_that_fits(tree: Path) -> None:
    known = [suite(f"s{number}", sources=("old",)) for number in range(9)]
    run, left = planned(tree, known)
    assert len(run) == 9
    assert left == []
    assert sum("no suite is known to be for new/file" in each for each in run) >= 7


MISTAKES = """\
[a]
tier = "sometimes"
seconds = 3
folders = ["tests"]
[b]
tier = "long"
commands = ["true"]
[c]
tier = "long"
seconds = "3"
folders = ["tests"]
comands = []
[d]
tier = "long"
seconds = 3
[e]
tier = "long"
seconds = 3
folders = ["tests/none"]
sources = ["none"]
"""


def test_all_mistakes_of_the_map_are_said_at_once(tree: Path) -> None:
    (tree / MAP).write_text(MISTAKES)
    with pytest.raises(CheckError) as raised:
        read_suites(tree)
    assert [line.removeprefix(f"{MAP}: ") for line in str(raised.value).splitlines()] == [
        "a: tier: choose from common, long, release",
        "b: seconds: say how long it takes on two idle cores",
        "c: 'comands' is no key: choose from tier, seconds, folders, mark, workers, commands, "
        "sources, imports, low_priority",
        "c: seconds = '3' is no int",
        "d: give either folders, which pytest runs, or commands",
        "e: there is no tests/none: name a file or folder of this tree",
        "e: there is no none: name a file or folder of this tree",
    ]


def test_a_name_stands_for_those_that_begin_with_it() -> None:
    known = [suite("guests-a"), suite("guests-b"), suite("guest")]
    assert [each.name for each in choose(known, ["guests"])] == ["guests-a", "guests-b"]
    with pytest.raises(CheckError, match="no suite is called 'gues': choose from guests-a, "):
        choose(known, ["gues", "guest"])


def check(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command on a separate tree."""
    program = f"import checks.__main__ as m; from pathlib import Path; m.TREE = Path({str(tree)!r})"
    return subprocess.run(
        [sys.executable, "-c", f"{program}; raise SystemExit(m.main())", *words],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


SUITES = """\
[good]
tier = "common"
seconds = 1
commands = ["true", "sh -c 'echo x >>good.ran'"]
[aside]
tier = "common"
seconds = 1
commands = ["echo said aside"]
low_priority = true
[bad]
tier = "long"
seconds = 1
commands = ["test -e mended"]
"""


def test_all_goes_on_with_what_was_not_good(tree: Path) -> None:
    (tree / MAP).write_text(SUITES)
    (tree / ".gitignore").write_text("build\n*.ran\n")
    done = check(tree, "all")
    assert done.returncode == 1
    assert "check: error: bad: failed: exit status 1" in done.stdout
    assert "said aside" in done.stdout
    kept = records.read_records(tree / "build/check-all.json")
    assert all(0 <= each.seconds < GUARD_SECONDS for each in kept)
    assert {each.suite: each.is_good for each in kept} == {
        "good": True,
        "aside": True,
        "bad": False,
    }
    assert all(each.commit.startswith(records.commit_of(tree)[:40]) for each in kept)
    again = check(tree, "all")
    assert again.stdout.count("nothing near it changed since") == 2
    assert (tree / "good.ran").read_text() == "x\n"
    (tree / "mended").touch()  # after a change of the tree, common suites run again
    assert check(tree, "all").returncode == 0
    assert (tree / "good.ran").read_text() == "x\nx\n"
    assert check(tree, "all", "--again").returncode == 0
    assert (tree / "good.ran").read_text() == "x\nx\nx\n"


def commit_all(tree: Path) -> None:
    for words in (["add", "."], ["commit", "-q", "--no-verify", "-m", "change"]):
        subprocess.run(["git", "-C", tree, *words], env=os.environ | GIT, check=True)


LONG_SUITES = """\
[first]
tier = "long"
seconds = 1
commands = ["sh -c 'echo first >>first.ran'"]
sources = ["one"]
[second]
tier = "long"
seconds = 1
commands = ["sh -c 'echo second >>second.ran'"]
sources = ["two"]
"""


def test_all_leaves_out_what_was_good_where_nothing_near_it_changed(tree: Path) -> None:
    """The good run may be any earlier one; files that no suite names may concern each suite."""

    def ran() -> list[int]:
        files = (tree / "first.ran", tree / "second.ran")
        return [len(file.read_text().split()) if file.exists() else 0 for file in files]

    (tree / ".gitignore").write_text("build\n*.ran\n")
    for name in ("one", "two"):
        (tree / name).write_text("1")
    (tree / MAP).write_text(LONG_SUITES)
    commit_all(tree)
    assert check(tree, "only", "first").returncode == 0
    assert check(tree, "all").returncode == 0
    assert ran() == [1, 1]
    (tree / "two").write_text("2")
    commit_all(tree)
    assert check(tree, "all").returncode == 0
    assert ran() == [1, 2]
    (tree / "strange").touch()
    commit_all(tree)
    assert check(tree, "all").returncode == 0
    assert ran() == [2, 3]


def test_a_suite_that_is_named_wrong_is_one_line(tree: Path) -> None:
    (tree / MAP).write_text(SUITES)
    done = check(tree, "only", "god")
    assert done.returncode == 2
    assert done.stderr == ("check: error: no suite is called 'god': choose from good, aside, bad\n")
    assert check(tree, "times").stderr == (
        "check: error: nothing was run yet in this tree: run `make check` first\n"
    )


def test_a_list_whose_reader_went_away_ends_without_a_word(tree: Path) -> None:
    (tree / MAP).write_text(
        "".join(f'[s{n}]\ntier = "long"\nseconds = 1\ncommands = ["true"]\n' for n in range(999))
    )
    program = f"import checks.__main__ as m; from pathlib import Path; m.TREE = Path({str(tree)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; raise SystemExit(m.main())", "list"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_leftovers_of_an_earlier_run_do_not_count(tree: Path) -> None:
    """A broken result file does not count as a result either."""
    (tree / MAP).write_text(SUITES)
    (tree / "build/check").mkdir(parents=True)
    (tree / "build/check/old.xml").write_text(
        '<x><testcase name="a"><skipped message="old"/></testcase></x>'
    )
    done = check(tree, "common")
    assert done.returncode == 0
    assert "skipped: 0 tests" in done.stdout
    (tree / "build/check-all.json").write_text("{")
    assert "is no list of results" in check(tree, "all").stderr


def test_a_process_that_a_suite_leaves_is_ended(tree: Path) -> None:
    (tree / MAP).write_text(
        '[left]\ntier = "common"\nseconds = 1\n'
        "commands = [\"sh -c 'sleep 1000 & echo $! >left.pid'\"]\n"
    )
    assert check(tree, "common").returncode == 0
    process = int((tree / "left.pid").read_text())
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(process).status() == psutil.STATUS_ZOMBIE, "which init has not reaped"


def test_an_interrupted_run_ends_its_suite_and_those_of_low_priority(tree: Path) -> None:
    """One line says so."""
    (tree / MAP).write_text(
        '[slow]\ntier = "common"\nseconds = 1\n'
        "commands = [\"sh -c 'echo $$ >slow.pid; exec sleep 1000'\"]\n"
        '[aside]\ntier = "common"\nseconds = 1\nlow_priority = true\n'
        "commands = [\"sh -c 'echo $$ >aside.pid; exec sleep 1000'\"]\n"
    )
    program = f"import checks.__main__ as m; from pathlib import Path; m.TREE = Path({str(tree)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; raise SystemExit(m.main())", "common"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + GUARD_SECONDS
        files = [tree / f"{name}.pid" for name in ("slow", "aside")]
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=GUARD_SECONDS)[1] == (
            "check: error: interrupted: nothing of it runs any more\n"
        )
    assert process.returncode == 130
    for file in files:
        with suppress(psutil.NoSuchProcess):
            assert psutil.Process(int(file.read_text())).status() == psutil.STATUS_ZOMBIE


def test_a_suite_that_hangs_is_ended_and_those_after_it_run(
    tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If somebody else ends a run of CI, the run does not say which suite hung."""
    hangs, good = suite("hangs", commands=(("sleep", "1000"),)), suite("good")
    kept: list[records.Record] = []
    began = time.time()
    run_suites([(hangs, "why"), (good, "why")], tree, kept.append, began, latest=began + 1)
    assert [(each.suite, each.result) for each in kept] == [
        ("hangs", "hung: ended after 1 s"),
        ("good", "passed"),
    ]
    assert "hung: ended after 1 s" in capfd.readouterr().out


def test_a_full_disk_is_said_before_anything_runs(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / MAP).write_text(SUITES)
    monkeypatch.setattr(command, "TREE", tree)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    monkeypatch.setattr(sys, "argv", ["checks", "common"])
    assert command.main() == 2
    assert capsys.readouterr().err == (
        f"check: error: the disk of {tree} has 5 MiB left, and checks need 4096: "
        "make room, for example with `make clean`\n"
    )
    assert not (tree / "good.ran").exists()


def test_tests_of_a_file_are_run_by_one_process() -> None:
    """Otherwise each process creates the fixtures that the file's tests share."""
    file = "tests/python/launch/test_derived_keys.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-v", file],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_SECONDS,
    )
    processes = re.findall(r"^\[(gw\d)\].* PASSED", done.stdout, re.MULTILINE)
    assert len(processes) > 5
    assert len(set(processes)) == 1


def test_groups_of_files_begin_and_files_of_many_tests_end(request: pytest.FixtureRequest) -> None:
    """Otherwise at the end one process has a file of half a minute, and the others are idle."""
    files = ("study/test_a.py", "study/test_b.py", "slurm/test_c.py", "launch/test_d.py")
    items = [
        SimpleNamespace(nodeid=f"tests/python/{file}::test_{number}")
        for file, count in zip(files, (3, 1, 2, 1), strict=True)
        for number in range(count)
    ]
    shared = request.config.pluginmanager.get_plugin(str(CHECKOUT / "tests/python/conftest.py"))
    assert shared is not None
    as_found = list(items)
    shared.pytest_collection_modifyitems(SimpleNamespace(), items)
    assert items == as_found  # without other processes
    shared.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)
    assert list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items)) == [
        f"tests/python/{files[index]}" for index in (3, 2, 1, 0)
    ]
