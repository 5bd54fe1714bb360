"""The provider through libfabric's interface, with every libfabric that it must serve.

tests/api/ has the scenarios, each with one to four processes on one region.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_support import made
from launch_support import long_unless
from libfabric_support import library_directory

from vicinal import region

LIBRARIES = ("system", "mpich")
"""The oldest and the newest release that the provider serves. All groups run with both."""
MORE_LIBRARIES = ("openmpi", "mpich43", "openmpi41", "intel")
"""The newest release in another build, and the releases of `make mpis`: 1.22 twice, and the 2.4
that Intel changed.
"""
SANITIZED = "mpich"
"""The library for the sanitizers. The system's 1.17 reads all of /proc/kallsyms when it starts,
which takes most of the time of a short scenario.
"""

GROUPS = (
    *(
        "address",
        "atomic",
        "atomic_refused",
        "beyond",
        "complete",
        "counter",
        "crowd",
        "descriptor",
        "direct",
    ),
    *(
        "ended",
        "event",
        "fork",
        "heap",
        "info",
        "input",
        "late",
        "leaks",
        "match",
        "misuse",
        "mr",
        "multiple",
        "order",
        "rma",
        "rma_refused",
        "send",
        "several",
        "thread",
        "wait",
    ),
)
OVER_TCP = ("beyond", "late")
"""Groups in which peers continue over the network."""
GUARD_SECONDS = 240
"""A guard against hangs: a group takes a few seconds."""

IN_OWN_NETWORK = """
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 || exit
ip link set lo up || exit
ip link add outside type veth peer name beyond || exit
ip address add 192.0.2.1/24 dev outside || exit
ip link set outside up && ip link set beyond up || exit
ip route add default via 192.0.2.2 || exit
"$@" || exit
awk '$1 == "outside:" {print "sent " $11}' /proc/net/dev
"""
"""Shell that runs a command where packets beyond this host leave by an interface that counts."""

OLDEST = ("address", "info", "mr", "send", "wait")
"""Groups that the common check also runs with the system's libfabric. Releases differ in what
they offer, in how memory is registered, and in how a caller waits.
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(region_path: Path) -> dict[str, str]:
    region.create(region_path, heap_bytes=2 << 20)
    own = {"VICINAL_REGION": f"file:{region_path}"}
    return {name: value for name, value in os.environ.items() if name[:3] != "FI_"} | own


@pytest.fixture
def run(checkout: Path, environment: dict[str, str]) -> Run:
    """Runs a group of scenarios from a build with a library."""

    def run(
        group: str, library: str = "system", build: str = "release", **more: str
    ) -> subprocess.CompletedProcess[str]:
        directory = checkout / "build" / build
        variables = environment | {"FI_PROVIDER_PATH": str(directory / "provider")} | more
        path = library_directory(library)
        if path is not None:
            variables["LD_LIBRARY_PATH"] = str(path)
        return subprocess.run(
            [directory / "tests/api/api", group],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD_SECONDS,
        )

    return run


def scenarios_of(checkout: Path, group: str) -> list[str]:
    """The names in a file's table of scenarios, in order."""
    source = (checkout / f"tests/api/{group}.c").read_text()
    table = source[source.index("const struct scenario ") :]
    return re.findall(r'\{"(\w+)", \d, \w+\}', table)


def check(result: subprocess.CompletedProcess[str], names: list[str]) -> None:
    """Check that every scenario ran and passed."""
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"ok {name}" for name in names]
    assert names


@pytest.mark.parametrize(
    ("library", "group"),
    [
        *[("mpich", group) for group in GROUPS],
        *[
            pytest.param("system", group, marks=[pytest.mark.long][group in OLDEST :])
            for group in GROUPS
        ],
    ],
)
def test_group(run: Run, checkout: Path, library: str, group: str) -> None:
    check(run(group, library), scenarios_of(checkout, group))


@pytest.mark.long
@pytest.mark.parametrize("library", MORE_LIBRARIES)
def test_other_releases(run: Run, checkout: Path, library: str) -> None:
    """The same provider with other builds of libfabric: its offer, and some calls of each kind."""
    if not (checkout / "build/mpi" / library).exists():
        pytest.skip(f"{library} is not installed: make mpis")
    for group in ("info", "event", "input", "match", "mr", "leaks"):
        check(run(group, library), scenarios_of(checkout, group))


def test_a_program_without_mpi_may_have_the_library_for_mpi(run: Run, checkout: Path) -> None:
    """`vicinal env` names the library for all programs. Several endpoints offer it their region."""
    library = checkout / "build/release/provider/libvicinal-mpi.so"
    done = run("address", "mpich", LD_PRELOAD=str(library))
    check(done, scenarios_of(checkout, "address"))


@pytest.mark.parametrize("group", ["address", "fork", "several", "wait"])
def test_in_two_regions(run: Run, checkout: Path, region_path: Path, group: str) -> None:
    """All ranks are members of both regions, and find each other in the first."""
    other = region_path.with_name(f"{region_path.name}-other")
    with region.create(other) as second:
        both = f"file:{region_path},{second.name}"
        check(run(group, "mpich", VICINAL_REGION=both), scenarios_of(checkout, group))
        state = region.inspect(other)
    assert state.members
    assert all(member.home is not None for member in state.members)
    assert {(each.sender, each.receiver) for each in state.connections} == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sender_of_a_region_that_is_not_there_any_more_has_its_name(
    run: Run, checkout: Path, region_path: Path, library: str
) -> None:
    """The shared region is the second region of one rank and the first of the other."""
    other = region_path.with_name(f"{region_path.name}-other")
    with region.create(other) as second:
        both = f"{second.name},file:{region_path}"
        check(run("late", library, VICINAL_REGION=both), scenarios_of(checkout, "late"))
    assert region_path.stat().st_size == 0


@pytest.mark.parametrize(
    "group",
    [pytest.param(group, marks=long_unless(group in ("address", *OVER_TCP))) for group in GROUPS],
)
def test_no_scenario_sends_beyond_this_host(
    checkout: Path, environment: dict[str, str], group: str
) -> None:
    """What happens to a packet there depends on the network of the machine that runs the tests."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    program = checkout / "build/release/tests/api/api"
    result = subprocess.run(
        ["unshare", "--net", *user, "sh", "-c", IN_OWN_NETWORK, "sh", program, group],
        env=environment | {"FI_PROVIDER_PATH": str(checkout / "build/release/provider")},
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    assert result.returncode == 0, result.stderr
    ran = [f"ok {name}" for name in scenarios_of(checkout, group)]
    assert result.stdout.splitlines() == [*ran, "sent 0"]


def test_each_file_of_scenarios_is_a_group(checkout: Path) -> None:
    files = {path.stem for path in (checkout / "tests/api").glob("*.c")}
    assert files - {"harness", "waiting", "traffic"} == set(GROUPS)


def test_the_table_of_calls_names_scenarios_that_there_are(checkout: Path) -> None:
    table = (checkout / "tests/api/README.md").read_text()
    named = re.findall(r"`([a-z_]+)/(\w+)`", table)
    assert named
    for group, scenario in named:
        assert scenario in scenarios_of(checkout, group), f"{group}/{scenario}"
    missing = {
        f"{group}/{scenario}"
        for group in GROUPS
        for scenario in scenarios_of(checkout, group)
        if (group, scenario) not in named and f"group `{group}`" not in table
    }
    assert not missing, "tests/api/README.md says nothing of these"


@pytest.mark.parametrize("library", [*LIBRARIES, "openmpi"])
def test_the_library_is_the_one_that_was_meant(
    checkout: Path, library: str, environment: dict[str, str]
) -> None:
    """Otherwise all tests might use the same library."""
    path = library_directory(library)
    loader = {} if path is None else {"LD_LIBRARY_PATH": str(path)}
    listed = subprocess.run(
        ["ldd", checkout / "build/release/tests/api/api"],
        env=environment | loader,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (found,) = re.findall(r"libfabric\.so\.1 => (\S+)", listed)
    expected = Path(found).parent.resolve() if path is None else path.resolve()
    assert Path(found).parent.resolve() == expected
    if path is None:
        assert "build" not in Path(found).parts


@pytest.mark.long
@pytest.mark.parametrize("group", ["order", "several", "thread"])
def test_threads_do_not_race(run: Run, checkout: Path, group: str) -> None:
    """The scenarios with the thread sanitizer; `scripts/build tsan` makes this build."""
    made("tsan")
    names = scenarios_of(checkout, group)
    check(run(group, SANITIZED, build="tsan", TSAN_OPTIONS="halt_on_error=1"), names)


@pytest.mark.long
@pytest.mark.parametrize("group", GROUPS)
def test_memory_is_used_as_it_should(run: Run, checkout: Path, group: str) -> None:
    """The scenarios with the address and undefined behaviour sanitizers, leaks included."""
    made("asan")
    more = {}
    if group in OVER_TCP:
        # Only for these groups, because it excuses every allocation below a call from libfabric.
        suppressions = f"suppressions={checkout / 'tests/api/libfabric.supp'}:print_suppressions=0"
        more = {"LSAN_OPTIONS": suppressions}
    check(run(group, SANITIZED, build="asan", **more), scenarios_of(checkout, group))


@pytest.mark.long
def test_nothing_leaks(checkout: Path, environment: dict[str, str]) -> None:
    """Objects are closed in any order with operations in progress, under valgrind.

    Unlike the leak sanitizer, valgrind sees the provider that applications load, libfabric itself,
    and reads of uninitialized memory. libfabric-valgrind.supp lists the leaks of libfabric itself.
    """
    valgrind = [
        *(
            "valgrind",
            "--quiet",
            "--leak-check=full",
            "--show-leak-kinds=definite,indirect,possible",
            f"--suppressions={checkout / 'tests/api/libfabric-valgrind.supp'}",
        ),
        *("--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=9"),
    ]
    result = subprocess.run(
        [*valgrind, checkout / "build/release/tests/api/api", "leaks"],
        env=environment | {"FI_PROVIDER_PATH": str(checkout / "build/release/provider")},
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    check(result, scenarios_of(checkout, "leaks"))
    assert "==" not in result.stderr


def test_a_failing_scenario_is_told(run: Run) -> None:
    """A test of the harness: a failed expectation ends with an error."""
    result = run("info", VICINAL_REGION="file:/nonexistent/region")
    assert result.returncode == 1
    assert "FAILED offer, rank 0: " in result.stderr
