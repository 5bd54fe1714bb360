"""The variables that users set: known names and values, and regions found without a variable."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from launch_support import package_path

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.mpi.variables import check_variables

PROVIDER = CHECKOUT / "build/release/provider"
API = CHECKOUT / "build/release/tests/api/api"


def documented(page: str) -> set[str]:
    """The variables that a man page lists, each at the beginning of a line."""
    text = (CHECKOUT / "docs/man" / page).read_text()
    section = text[text.index("\n# ENVIRONMENT\n") :].split("\n# ")[1]
    lines = (line for line in section.splitlines() if line.startswith("*"))
    return {name for line in lines for name in re.findall(r"\*(\w+)\*", line)}


def without_libfabrics(**more: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name[:3] != "FI_"} | more


def test_every_documented_variable_is_known() -> None:
    names = documented("fi_vicinal.7.scd") | documented("vicinal.1.scd.in")
    assert len(names) > 12
    check_variables(dict.fromkeys(names, ""))
    check_variables({f"FI_{name}": "" for name in documented("fi_vicinal.7.scd")})


def test_the_page_of_variables_lists_those_of_both_manuals() -> None:
    page = (CHECKOUT / "docs/reference/commands.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`(\w+)`", rows))
    both = documented("fi_vicinal.7.scd") | documented("vicinal.1.scd.in")
    assert {name for name in both if name.isupper()} <= listed
    check_variables({name: "" for name in listed if name.startswith("VICINAL_")})


def test_fi_info_shows_the_variables_that_the_manual_lists() -> None:
    shown = subprocess.run(
        ["fi_info", "-e"],
        env=without_libfabrics(FI_PROVIDER_PATH=str(PROVIDER)),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = set(re.findall(r"\bFI_(VICINAL_\w+): ", shown))
    assert named == documented("fi_vicinal.7.scd")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("VICINAL_REGOIN", "file:/dev/shm/x", "VICINAL_REGOIN: did you mean VICINAL_REGION?"),
        ("FI_VICINAL_PROGRES", "block", "FI_VICINAL_PROGRES: did you mean VICINAL_PROGRESS?"),
        ("FI_VICINAL_MPICH", "/usr", "Vicinal has no variable FI_VICINAL_MPICH"),
        ("VICINAL_XYZ", "", "Vicinal has no variable VICINAL_XYZ: unset the variable"),
        ("VICINAL_PROGRESS", "fast", "VICINAL_PROGRESS=fast is none of poll, adaptive, block"),
        (
            "FI_VICINAL_SINGLE_COPY",
            "yes",
            "SINGLE_COPY=yes is none of auto, on, off: correct the value",
        ),
        ("VICINAL_PEER_TIMEOUT", "0", "above 0 and up to 86400"),
        ("VICINAL_PEER_TIMEOUT", "nan", "above 0 and up to 86400"),
        ("VICINAL_PEER_TIMEOUT", "5s", "above 0 and up to 86400"),
        ("VICINAL_HEAP_THRESHOLD", "000K", "VICINAL_HEAP_THRESHOLD=000K is not a size"),
        ("VICINAL_SEND_QUEUE", "0", "VICINAL_SEND_QUEUE=0 is not a size"),
        ("VICINAL_UNEXPECTED", "1000", "VICINAL_UNEXPECTED=1000 is not a number from 1K to 1G"),
        ("VICINAL_UNEXPECTED", "2G", "VICINAL_UNEXPECTED=2G is not a number from 1K to 1G"),
        ("VICINAL_HEAP_THRESHOLD", "64KiB", "VICINAL_HEAP_THRESHOLD=64KiB is not a size"),
    ],
)
def test_what_is_unknown_or_malformed_is_named(name: str, text: str, says: str) -> None:
    with pytest.raises(VicinalError, match=re.escape(says)):
        check_variables({"PATH": "/bin", name: text})


def test_values_that_can_be() -> None:
    check_variables(
        {
            "VICINAL_PROGRESS": "block",
            "VICINAL_SINGLE_COPY": "auto",
            "VICINAL_PEER_TIMEOUT": "0.5",
            "FI_VICINAL_PEER_TIMEOUT": "86400",
            "VICINAL_HEAP_THRESHOLD": "100k",
            "FI_PROVIDER": "anything",
            "OTHER": "anything",
        }
    )


def test_commands_refuse_them_before_anything_starts(vicinal: Vicinal, tmp_path: Path) -> None:
    line = error_line(vicinal("run", "-n", 2, "true", VICINAL_REGOIN="file:/dev/shm/x"))
    assert "Vicinal has no variable VICINAL_REGOIN" in line
    line = error_line(vicinal("env", "--mpi", "mpich", VICINAL_PROGRESS="fast"))
    assert "VICINAL_PROGRESS=fast is none of poll, adaptive, block: correct the value" in line
    for command in (["demo"], ["bench"], ["guests", "demo"], ["guests", "run", "true"]):
        output = [] if "run" in command else ["--output", tmp_path]
        line = error_line(vicinal(*command, *output, VICINAL_PROGRESS="fast"))
        assert "VICINAL_PROGRESS=fast is none of poll" in line


def test_the_provider_says_it_once_and_takes_the_default(region_path: Path) -> None:
    """This serves users who start their ranks by another launcher."""
    region.create(region_path)
    variables = {"FI_PROVIDER_PATH": str(PROVIDER), "VICINAL_REGION": f"file:{region_path}"}
    done = subprocess.run(
        [API, "address", "names"],
        env=without_libfabrics(**variables, VICINAL_PROGRESS="fast", VICINAL_SINGLE_COPY="yes"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stderr.splitlines()) == [
        "vicinal: error: VICINAL_PROGRESS=fast is none of poll, adaptive and block: "
        "using adaptive, correct it",
        "vicinal: error: VICINAL_SINGLE_COPY=yes is neither auto, on nor off: "
        "using auto, correct it",
    ]


# --- regions that are found without a variable ---------------------------------------------

FIND = """
import os, subprocess, sys
from pathlib import Path
from vicinal import region

for directory in ("/dev/shm", "/run"):
    subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=True)
regions = [Path(path) for path in sys.argv[2:]]
for path in regions:
    path.parent.mkdir(exist_ok=True)
    region.create(path)
status = subprocess.run([sys.argv[1], "address", "names"], stdout=subprocess.DEVNULL).returncode
print(status, *(len(region.inspect(path).members) > 0 for path in regions))
"""

RUN, SHM = "/run/vicinal/region", "/dev/shm/vicinal-region"


@pytest.mark.parametrize(
    ("regions", "joined"),
    [
        ([RUN], "0 True"),
        ([SHM], "0 True"),
        ([SHM, RUN], "0 False True"),
        (["/dev/shm/other"], "1 False"),
    ],
)
def test_a_region_is_found_by_itself(regions: list[str], joined: str) -> None:
    """The regions are in mounted directories that contain nothing else."""
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    variables = without_libfabrics(FI_PROVIDER_PATH=str(PROVIDER), PYTHONPATH=package_path())
    variables.pop("VICINAL_REGION", None)
    done = subprocess.run(
        [*enter, sys.executable, "-c", FIND, API, *regions],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{joined}\n", done.stderr
