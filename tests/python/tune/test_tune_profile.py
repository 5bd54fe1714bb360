"""Profiles: their text, the provider's table of thresholds, and jobs with different profiles."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from hypothesis import given
from hypothesis import strategies as st
from launch_support import MPIS

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.host.finding import Finding, Status
from vicinal.host.system import Host
from vicinal.labs.programs import mpi_program
from vicinal.labs.tune.knob import Setting
from vicinal.labs.tune.knobs.variables import VARIABLES
from vicinal.labs.tune.profile import (
    parse_profile,
    profile_in_force,
    profile_text,
    read_profile,
    thresholds_of,
)
from vicinal.labs.tune.profile_check import check_profile
from vicinal.mpi.libraries import Mpi
from vicinal.mpi.thresholds import THRESHOLDS, number

PROVIDER = CHECKOUT / "build/release/provider"
API = CHECKOUT / "build/release/tests/api/api"

PRINT_TABLE = """
#include <stdio.h>
#include "proto/messenger.h"
int main(void)
{
    for (unsigned i = 0; i < THRESHOLDS; i++) {
        const struct threshold *each = &threshold_table[i];
        printf("%s %s %u %u %u\\n", each->key, each->variable, each->usual,
               each->least, each->most);
    }
}
"""


def test_the_table_is_the_provider_s(tmp_path: Path) -> None:
    source, program = tmp_path / "table.c", tmp_path / "table"
    source.write_text(PRINT_TABLE)
    sources = [source, CHECKOUT / "provider/proto/thresholds.c"]
    options = ["-std=gnu11", f"-I{CHECKOUT / 'provider'}", "-o", str(program)]
    subprocess.run(["gcc", *options, *sources], check=True)
    shown = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == [
        f"{each.key} {each.variable} {each.usual} {each.least} {each.most}" for each in THRESHOLDS
    ]


def test_knobs_have_values_that_can_be() -> None:
    rows = {each.name: each.values for each in VARIABLES}
    for each in THRESHOLDS:
        values = rows[each.variable]
        assert each.usual in values
        assert [each.fault(str(value)) for value in values] == [None] * len(values)


@given(
    st.dictionaries(st.sampled_from(THRESHOLDS), st.integers(min_value=0, max_value=10**6)),
    st.text(max_size=40),
)
def test_what_is_written_is_read(drawn: dict, heading: str) -> None:  # type: ignore[type-arg]
    chosen = {
        each.key: each.least + value % (each.most - each.least + 1) for each, value in drawn.items()
    }
    assert parse_profile(profile_text(chosen, heading), "p") == chosen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("eager_bytes", "p, line 1: 'eager_bytes' is not key = value"),
        ("\neager_byte = 1", "p, line 2: there is no threshold 'eager_byte': did you mean"),
        ("eager_bytes = 4095", "p, line 1: '4095' is not a number from 4096 to 65536"),
        ("eager_bytes = 0x2000", "'0x2000' is not a number"),
        ("eager_bytes = 8192\neager_bytes = 8192", "line 2: eager_bytes appears twice"),
        ("\n" * 16384, "has 16384 bytes or more"),
    ],
)
def test_lines_that_say_nothing(text: str, says: str) -> None:
    with pytest.raises(VicinalError, match=re.escape(says)):
        parse_profile(text, "p")


def test_sizes_are_read_as_the_provider_does() -> None:
    texts = ("8192", "8K", "1m", "0", "", "K", "8KB", "-1", "1" * 30, "8 K")
    found = [8192, 8192, 1 << 20, 0, None, None, None, None, None, None]
    assert [number(each) for each in texts] == found


def write_profile(path: Path, thresholds: dict[str, int], heading: str = "") -> None:
    """Write a profile that the provider trusts: only its owner may write it."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(profile_text(thresholds, heading))
    path.chmod(0o644)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "vicinal/profile"
    write_profile(path, {"eager_bytes": 16384}, "found\nby hand")
    assert path.read_text() == "# found\n# by hand\neager_bytes = 16384\n"
    assert read_profile(path) == {"eager_bytes": 16384}
    assert profile_in_force({"XDG_CONFIG_HOME": str(tmp_path)}) == path
    assert profile_in_force({"XDG_CONFIG_HOME": str(tmp_path), "VICINAL_PROFILE": ""}) is None
    assert profile_in_force({"VICINAL_PROFILE": "/x"}) == Path("/x")
    with pytest.raises(VicinalError, match="cannot be read"):
        read_profile(tmp_path)


def examined(monkeypatch: pytest.MonkeyPatch, **variables: str | Path) -> list[Finding]:
    """What `vicinal doctor` finds if these are the only variables of Vicinal."""
    for name in [name for name in os.environ if "VICINAL_" in name]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    return list(check_profile(Host()))


def test_doctor_names_the_file_in_force(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "vicinal/profile"
    write_profile(path, {"eager_bytes": 16384, "pieces_in_flight": 4})
    [found] = examined(monkeypatch, XDG_CONFIG_HOME=tmp_path)
    assert found.status is Status.PASS
    assert found.text == f"{path}: eager_bytes 16384, pieces_in_flight 4"
    [found] = examined(monkeypatch, XDG_CONFIG_HOME=tmp_path, VICINAL_PROFILE="")
    assert (found.status, found.text[:24]) == (Status.SKIP, "VICINAL_PROFILE is empty")
    _, before = examined(monkeypatch, VICINAL_PROFILE=path, VICINAL_EAGER_BYTES="8K")
    assert before.status is Status.WARN
    assert before.text.endswith(": VICINAL_EAGER_BYTES")


def test_doctor_says_why_a_profile_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fault(path: Path) -> str:
        [found] = examined(monkeypatch, VICINAL_PROFILE=path)
        assert found.status is Status.WARN
        return found.text

    path = tmp_path / "profile"
    assert "cannot be read" in fault(path)
    path.write_text("eager_bytes = 8192\neager_byte = 8192\n")
    path.chmod(0o644)
    assert "line 2: there is no threshold 'eager_byte'" in fault(path)
    path.chmod(0o666)
    assert f"other users can write {path}" in fault(path)
    assert "is not a regular file" in fault(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_doctor_knows_a_profile_of_another_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "profile"
    path.touch(0o644)
    os.chown(path, 12345, -1)
    [found] = examined(monkeypatch, VICINAL_PROFILE=path)
    assert found.text == f"{path} belongs to user 12345, and is not used"


def test_the_thresholds_of_a_setting() -> None:
    setting: Setting = {
        "VICINAL_EAGER_BYTES": 8192,
        "VICINAL_SHORT_BYTES": "unset",
        "eth1/rx-usecs": 3,
    }
    assert thresholds_of(setting) == {"eager_bytes": 8192}
    with pytest.raises(VicinalError, match="VICINAL_EAGER_BYTES: '1' is not a number"):
        thresholds_of({"VICINAL_EAGER_BYTES": 1})


def test_export_writes_it(vicinal: Vicinal, tmp_path: Path) -> None:
    to = tmp_path / "config"
    setting = ("--setting", "VICINAL_EAGER_BYTES=16384", "--setting", "VICINAL_PROGRESS=poll")
    done = vicinal("tune", "export", "--to", to, *setting, "--format", "profile")
    assert done.returncode == 0, done.stderr
    assert read_profile(to / "vicinal/profile") == {"eager_bytes": 16384}
    assert profile_in_force({"XDG_CONFIG_HOME": str(to)}) == to / "vicinal/profile"
    none = vicinal("tune", "export", "--to", to, *setting[2:], "--format", "profile")
    assert "the setting has no thresholds: choose another --format" in error_line(none)


def provider_says(region_path: Path, **variables: str) -> list[str]:
    """The provider's standard error when a program opens an endpoint with FI_LOG_LEVEL=info."""
    if not region_path.exists():
        region.create(region_path)
    located = {"FI_PROVIDER_PATH": str(PROVIDER), "VICINAL_REGION": f"file:{region_path}"}
    own = {name: text for name, text in os.environ.items() if name[:3] != "FI_"}
    done = subprocess.run(
        [API, "address", "names"],
        env=own | located | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def in_force(region_path: Path, **variables: str) -> dict[str, int]:
    lines = "\n".join(provider_says(region_path, FI_LOG_LEVEL="info", **variables))
    return {key: int(value) for key, value in re.findall(r"> (\w+) is (\d+)$", lines, re.MULTILINE)}


def test_the_provider_loads_it(region_path: Path, tmp_path: Path) -> None:
    usual = {each.key: each.usual for each in THRESHOLDS}
    chosen = {"eager_bytes": 16384, "polls_per_read": 3}
    path = tmp_path / "vicinal/profile"
    write_profile(path, chosen)
    assert in_force(region_path, XDG_CONFIG_HOME=str(tmp_path)) == usual | chosen
    assert in_force(region_path, FI_VICINAL_PROFILE=str(path)) == usual | chosen
    assert in_force(region_path, XDG_CONFIG_HOME=str(tmp_path), VICINAL_PROFILE="") == usual
    variables = {"VICINAL_PROFILE": str(path), "VICINAL_EAGER_BYTES": "8K"}
    assert in_force(region_path, **variables) == usual | chosen | {"eager_bytes": 8192}


def test_the_provider_warns_once_and_goes_on(region_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_text("polls_per_read = 1\neager = 8192\n")
    path.chmod(0o644)
    warning = (
        f"vicinal: warning: profile {path}, line 2: there is no threshold eager: correct or delete "
        "the line, which is ignored"
    )
    assert provider_says(region_path, VICINAL_PROFILE=str(path)) == [warning]
    assert provider_says(region_path, VICINAL_PROFILE="", VICINAL_EAGER_BYTES="1") == [
        "vicinal: error: VICINAL_EAGER_BYTES=1 is not a number from 4096 to 65536: using 4096, "
        "correct it"
    ]


def test_commands_refuse_values_that_cannot_be(vicinal: Vicinal) -> None:
    line = error_line(vicinal("run", "-n", 2, "true", VICINAL_EAGER_BYTES="1"))
    assert "VICINAL_EAGER_BYTES=1 is not a number from 4096 to 65536: correct the value" in line


DIFFERENT = """
case ${PMIX_RANK:-$PMI_RANK} in
0) export VICINAL_PROFILE="$1" ;;
*) export VICINAL_PROFILE= VICINAL_SHORT_BYTES=104 VICINAL_POLLS_PER_READ=2 ;;
esac
shift
exec "$@"
"""


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_of_different_thresholds(vicinal: Vicinal, tmp_path: Path, mpi: str) -> None:
    """Each rank is in its own node, and the program checks every byte of messages of all kinds."""
    path = tmp_path / "profile"
    extreme = {"eager_bytes": 65536, "piece_bytes": 4096, "pieces_in_flight": 1, "short_bytes": 48}
    write_profile(path, extreme | {"single_copy_bytes": 16384, "reads_before_yield": 10})
    ranks = ["sh", "-c", DIFFERENT, "ranks", path, mpi_program(Mpi(mpi), "verify")]
    limits = ["--rounds", 1, "--max-size", 1 << 20]
    done = vicinal("run", "-n", 2, "--mpi", mpi, *ranks, *limits, FI_LOG_LEVEL="info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"errors": 0,') > 10
    # Each rank has thresholds that the other does not have.
    assert "piece_bytes is 4096" in done.stderr
    assert "piece_bytes is 65536" in done.stderr
