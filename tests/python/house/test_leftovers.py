"""Regions that killed tests leave in /dev/shm go, and nothing else does."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checks.leftovers import SHARED, new_shared_path, remove_leftovers
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS

OWNER = """
import sys
from pathlib import Path
from checks.leftovers import new_shared_path
where = Path(sys.argv[1])
new_shared_path(where).write_text("region")
(new_shared_path(where) / "deep").mkdir(parents=True)
print("ready", flush=True)
input()
"""
OWNER_IN_C = """
#include "shared_name.h"
int main(void)
{
	char name[SHARED_NAME_BYTES];
	shared_name(name);
	puts(name);
	fflush(stdout);
	return getchar() == 0;
}
"""
IN_SCRIPTS = os.environ | {"PYTHONPATH": str(CHECKOUT / "scripts")}


@contextmanager
def running(*command: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that waits for input, and its first line."""
    with subprocess.Popen(
        [str(word) for word in command],
        env=IN_SCRIPTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_process_left_is_removed(tmp_path: Path, number: signal.Signals) -> None:
    with running(sys.executable, "-c", OWNER, tmp_path) as (process, said):
        assert said == "ready"
        assert remove_leftovers(tmp_path) == []
        before = {each.name for each in tmp_path.iterdir()}
        assert len(before) == 2
        process.send_signal(number)
        process.wait(GUARD_SECONDS)
        assert set(remove_leftovers(tmp_path)) == before
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_stay(tmp_path: Path) -> None:
    """Those of users, of other PID namespaces, and those whose owner cannot be read."""
    own = new_shared_path(tmp_path)
    space, process, began = own.name.split("-")[2:5]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "file").touch()
    names = (
        own.name,
        "vicinal-region",
        "vicinal-0-lab",
        "vicinal-test-1",
        f"vicinal-test-1-{process}-1-abcdef",
        f"vicinal-test-{space}-{process}-{began}-demo_lab.2-x",
        f"x-vicinal-test-{space}-{process}-1-abcdef",
    )
    for name in names:
        (tmp_path / name).touch()
    again = f"vicinal-test-{space}-{process}-{int(began) + 1}-abcdef"  # the number was used before
    (tmp_path / again).symlink_to(elsewhere)
    assert remove_leftovers(tmp_path) == [again]
    assert {each.name for each in tmp_path.iterdir()} == {*names, "elsewhere"}
    assert (elsewhere / "file").exists()


def test_tests_in_c_make_the_same_names(tmp_path: Path) -> None:
    source, program = tmp_path / "name.c", tmp_path / "name"
    source.write_text(OWNER_IN_C)
    include = f"-I{CHECKOUT / 'tests/unit'}"
    subprocess.run(["gcc", "-D_GNU_SOURCE", include, "-o", program, source], check=True)
    with running(program) as (process, said):
        assert re.fullmatch(r"/dev/shm/vicinal-test-\d+-\d+-\d+-XXXXXX", said)
        (tmp_path / Path(said).name).touch()
        assert remove_leftovers(tmp_path) == []
        process.kill()
        process.wait(GUARD_SECONDS)
        assert remove_leftovers(tmp_path) == [Path(said).name]


@pytest.fixture
def leftover() -> Iterator[Path]:
    """A file in /dev/shm whose owner has ended."""
    with running(sys.executable, "-c", OWNER, SHARED) as (process, _):
        paths = list(SHARED.glob(f"vicinal-test-*-{process.pid}-*"))
        assert len(paths) == 2
        process.kill()
        process.wait(GUARD_SECONDS)
        yield paths[0]
        remove_leftovers()


def test_the_next_run_of_pytest_removes_them(leftover: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", Path(__file__).name]
    subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True)
    assert not leftover.exists()


def test_a_check_removes_them_at_its_end(leftover: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    suite = '[a]\ntier = "common"\nseconds = 1\ncommands = ["true"]\n'
    (tmp_path / "tests/suites.toml").write_text(suite)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "."], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    tree = (
        f"import checks.__main__ as m; from pathlib import Path; m.TREE = Path({str(tmp_path)!r})"
    )
    command = [sys.executable, "-c", f"{tree}; raise SystemExit(m.main())", "only", "a"]
    subprocess.run(command, cwd=tmp_path, env=IN_SCRIPTS, capture_output=True, check=True)
    assert not leftover.exists()
