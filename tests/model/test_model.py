"""Spin searches all states of transport.pml, under the rules of the code and under older rules.

tests/README.md says what the model leaves out. Each search under the rules of the
code must visit all states: a search that runs out of memory or depth is no proof, and fails.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GUARD_SECONDS = 3600
MEBIBYTES = 2048
DEPTH = 1_000_000
COMPILE = (
    *("gcc", "-w", "-DSAFETY", "-DNOFAIR", "-DCOLLAPSE", "-DNOBOUNDCHECK"),
    *("-DVECTORSZ=2048", f"-DMEMLIM={MEBIBYTES}", "-o", "pan", "pan.c"),
)

PAIR = (
    "REQUESTS=3",
    "REQUESTS=2 BUSY=1 DEATHS=1",
    "REQUESTS=2 MESSAGES=2 ATTACHED",
    "REQUESTS=1 BREAKS=1 DEATHS=1",
    "REQUESTS=1 EVICTIONS=1",
    "REQUESTS=1 LOSSES=1 DEATHS=1",
    "REQUESTS=1 OFFERS=1 BUSY=1",
)
"""Two members that send to each other."""

THREE = (
    "N=3 WHO=1 ATTACHED REQUESTS=1 STAR",
    "N=3 WHO=1 ATTACHED REQUESTS=1 FROM_FIRST DEATHS=1",
    "N=3 WHO=1 ATTACHED REQUESTS=1 FROM_FIRST LOSSES=1",
)
"""Three members. The manager's request concerns the first."""

OLD = {
    "B1": ("OLD_OFFER OFFERS=1 REQUESTS=1", r"attachment==1.*alias.*left\[i\].*evicted\[i\]"),
    "B2": ("OLD_LEAVE BREAKS=1 BUSY=1 REQUESTS=1", r"\(peers\[\(\(i\*2\)\+j\)\]\.attachment!=0\)"),
    "B2 of three": (
        "OLD_LEAVE BREAKS=1 BUSY=1 REQUESTS=1 N=3 WHO=1 ATTACHED FROM_FIRST",
        r"\(peers\[\(\(i\*3\)\+j\)\]\.attachment!=0\)",
    ),
    "a detach that nobody ends": ("OLD_STAY REQUESTS=2", ""),
    "a wait that failing over forgets": ("OLD_PAUSE REQUESTS=1 BREAKS=1", r"sent==1"),
}
"""Older rules, and the assertion whose violation the search must find."""


def search(options: str, directory: Path, optimize: str = "-O2") -> str:
    """The output of Spin's verifier for the model with these options."""
    defined = [f"-D{option}" for option in options.split()]
    commands = ["spin", *defined, "-a", str(HERE / "transport.pml")], [*COMPILE, optimize]
    for command in commands:
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    done = subprocess.run(
        ["./pan", f"-m{DEPTH}", "-n"],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    print(done.stdout)
    return done.stdout


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    """Fail instead of skipping if the package is missing."""
    assert shutil.which("spin"), "spin not found: run `scripts/setup proof`"


@pytest.mark.timeout(GUARD_SECONDS)
@pytest.mark.parametrize("options", [*PAIR, *THREE])
def test_nothing_is_wrong_in_any_state(options: str, tmp_path: Path) -> None:
    said = search(options, tmp_path)
    assert "errors: 0" in said
    for incomplete in ("Search not completed", "max search depth too small", "out of memory"):
        assert incomplete not in said
    states = re.search(r"(\d[\d.e+]*) states, stored", said)
    assert states
    assert float(states[1]) > 1000


@pytest.mark.timeout(GUARD_SECONDS)
@pytest.mark.parametrize("fault", OLD)
def test_old_rules_are_found_wrong(fault: str, tmp_path: Path) -> None:
    options, assertion = OLD[fault]
    said = search(options, tmp_path, "-O0")
    assert "errors: 1" in said
    violated = re.search(r"assertion violated (.*)", said)
    assert violated
    assert re.search(assertion, violated[1])
