"""Peers that share no region, reached over the network by another provider of the same libfabric.

The scenarios of tests/api/ run without a region. Each process makes a region of its own, so that
every message between two processes uses the network.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from command_support import made
from libfabric_support import library_directory
from test_api import GUARD_SECONDS, check, scenarios_of

GROUPS = (
    *(
        "address",
        "atomic",
        "atomic_refused",
        "complete",
        "counter",
        "ended",
        "fork",
        "match",
        "misuse",
    ),
    *("multiple", "order", "rma", "rma_refused", "send", "several", "thread"),
)
UNLIKE = {
    # The core makes progress and connections only while both ends call it.
    "misuse": {"left_early"},
    "several": {"two_domains"},
}
"""Scenarios that hold only within a region, with their reasons."""
CORES = (
    ("mpich", "", GROUPS),
    ("mpich", "tcp;ofi_rxm", ("order", "rma")),
    ("openmpi", "tcp", ("send", "order")),
    ("system", "", ("ended", "send", "order", "rma")),
)
"""Libraries, the value of VICINAL_NET, and what runs. The system's 1.17 has `net` where later
releases have `tcp`, and takes a second to start.
"""
COMMON = (
    *(("mpich", "", group) for group in ("address", "atomic", "ended", "match", "order", "rma")),
    ("mpich", "tcp;ofi_rxm", "order"),
    ("openmpi", "tcp", "send"),
    ("system", "", "send"),
)
"""What the common check runs: each library, each core, and each kind of operation once."""
SANITIZED = ("send", "order", "match", "rma", "atomic", "several")


def run(
    checkout: Path,
    arguments: list[str],
    library: str,
    core: str,
    build: str = "release",
    **more: str,
) -> subprocess.CompletedProcess[str]:
    directory = checkout / "build" / build
    path = library_directory(library)
    environment = {
        name: value for name, value in os.environ.items() if not re.match("FI_|VICINAL_", name)
    }
    environment |= {
        "FI_PROVIDER_PATH": str(directory / "provider"),
        # Without a region, the provider is there only if it is named. A layered core must be named
        # too.
        "FI_PROVIDER": "vicinal,tcp" if ";" in core else "vicinal",
        "VICINAL_NET_INTERFACE": "lo",
    } | more
    if core:
        environment["VICINAL_NET"] = core
    if path is not None:
        environment["LD_LIBRARY_PATH"] = str(path)
    return subprocess.run(
        [directory / "tests/api/api", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )


def run_group(
    checkout: Path, group: str, library: str, core: str, build: str = "release", **more: str
) -> None:
    unlike = UNLIKE.get(group, set())
    names = [name for name in scenarios_of(checkout, group) if name not in unlike]
    if not unlike:
        check(run(checkout, [group], library, core, build, **more), names)
        return
    for name in names:
        check(run(checkout, [group, name], library, core, build, **more), [name])


@pytest.mark.parametrize(
    ("library", "core", "group"),
    [
        pytest.param(
            *(library, core, group),
            marks=[pytest.mark.long][(library, core, group) in COMMON :],
        )
        for library, core, groups in CORES
        for group in groups
    ],
)
def test_group(checkout: Path, library: str, core: str, group: str) -> None:
    run_group(checkout, group, library, core)


@pytest.mark.long
@pytest.mark.parametrize("group", SANITIZED)
def test_memory_is_used_as_it_should(checkout: Path, group: str) -> None:
    """The scenarios with the address and undefined behaviour sanitizers."""
    made("asan")
    suppressions = f"suppressions={checkout / 'tests/api/libfabric.supp'}:print_suppressions=0"
    run_group(checkout, group, "mpich", "", build="asan", LSAN_OPTIONS=suppressions)


@pytest.mark.long
@pytest.mark.parametrize("group", ["order", "thread"])
def test_threads_do_not_race(checkout: Path, group: str) -> None:
    """The scenarios with the thread sanitizer."""
    made("tsan")
    run_group(checkout, group, "mpich", "", build="tsan", TSAN_OPTIONS="halt_on_error=1")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"VICINAL_NET": "nonsense"}, "libfabric has no such provider"),
        ({"VICINAL_NET_INTERFACE": "none0"}, "no provider of this libfabric reaches other hosts"),
        (
            {"VICINAL_NET": "tcp;ofi_rxm", "FI_PROVIDER": "vicinal"},
            "if FI_PROVIDER is set, it must name this provider besides vicinal",
        ),
    ],
)
def test_a_core_that_cannot_be_opened_is_told(
    checkout: Path, variables: dict[str, str], said: str
) -> None:
    result = run(checkout, ["order", "pair"], "mpich", "", **variables)
    assert result.returncode == 1
    lines = [line for line in result.stderr.splitlines() if line.startswith("vicinal: error: ")]
    assert lines
    assert all(said in line for line in lines)


def test_without_a_network_and_a_region_there_is_nothing(checkout: Path) -> None:
    result = run(checkout, ["order", "pair"], "mpich", "off")
    assert result.returncode == 1
    assert "No data available" in result.stderr
