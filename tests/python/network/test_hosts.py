"""`vicinal run` over several hosts that ssh reaches, and errors of hosts."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from host_support import Hosts, check_paths
from launch_support import GUARD_SECONDS, MPIS, ONE_MPI, check_reports, long_unless, wait_for
from process_support import signal_all

from vicinal.base.errors import VicinalError
from vicinal.cluster.hosts.remote.hosts import Host, parse_hosts, read_hostfile, spread
from vicinal.cluster.nodes.network import BRIDGE
from vicinal.labs.programs import mpi_program
from vicinal.mpi.libraries import Mpi
from vicinal.mpi.placement import Placement
from vicinal.mpi.traffic import JobTraffic, PairTraffic, merge_traffic

LEFT_SECONDS = 120.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(2, tmp_path_factory.mktemp("hosts")) as opened:
        yield opened


@pytest.fixture
def own_hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts for tests that damage one of them."""
    directory = tmp_path / "hosts"
    directory.mkdir()
    with Hosts(2, directory) as opened:
        yield opened


def nothing_left(hosts: Hosts, names: list[str]) -> None:
    deadline = time.monotonic() + LEFT_SECONDS
    while left := {n: w for n, w in hosts.leftovers().items() if n in names}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


# --- lists and files -----------------------------------------------------------------------


def test_the_forms_of_hostfiles(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\n\na\nb:2  # two\n  c slots=3 max_slots=4\r\n")
    assert read_hostfile(file) == [Host("a"), Host("b", 2), Host("c", 3)]
    assert parse_hosts("a, b:2,10.0.0.1") == [Host("a"), Host("b", 2), Host("10.0.0.1")]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a\na\nb\nb\nb\n", [Host("a", 2), Host("b", 3)]),  # PBS's nodefile
        ("a\nb\na\nb\n", [Host("a", 2), Host("b", 2)]),
        ("a:2\na\na slots=4", [Host("a", 7)]),
        (
            "a slots = 2\nb slots= 3 max_slots =4\nc\tslots\t=\t1",
            [Host("a", 2), Host("b", 3), Host("c", 1)],
        ),
        (
            "me@a\nme@b:2\nc user=me slots=2\nd username = me",
            [Host("me@a"), Host("me@b", 2), Host("me@c", 2), Host("me@d")],
        ),
        ("a count=2 # x\nb cpu=3 // y\n// z\n", [Host("a", 2), Host("b", 3)]),
        ("a SLOTS=2 Max-Slots=8\nb cpus-max=3", [Host("a", 2), Host("b")]),
    ],
    ids=str,
)
def test_what_launchers_and_batch_systems_write_is_read(
    tmp_path: Path, text: str, hosts: list[Host]
) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    notes: list[str] = []
    assert read_hostfile(file, notes.append) == hosts
    assert notes == []


def test_what_has_no_meaning_here_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "a:2 binding=user:0,1 ifname=eth1\nb sockets_per_board=2 binding = rr slots=2\n"
        "c num-cores=4\n"
    )
    notes: list[str] = []
    assert read_hostfile(file, notes.append) == [Host("a", 2), Host("b", 2), Host("c")]
    assert len(notes) == 1
    assert "binding, ifname, sockets_per_board" in notes[0]
    assert f"in the hostfile {file} has no effect" in notes[0]


def test_a_user_is_named_to_ssh_and_to_both_launchers(hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("root@node0\nnode1 user=root binding=rr\nroot@node0\n")
    for mpi in MPIS:
        program = mpi_program(Mpi(mpi), "verify")
        done = hosts.vicinal("run", "-n", 3, "--hostfile", file, program, "--max-size", 64)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("has no effect") == 1
    nothing_left(hosts, hosts.names)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no host"),
        ("# nothing\n\n", "names no host"),
        ("a:0", "'0' ranks for a"),
        ("a:x", "'x' ranks for a"),
        ("a\nme@a", "has both a and me@a"),
        ("me@a user=you", "the unknown option 'user=you'"),
        ("-oX@a", "does not name a user of a"),
        ("@a", "does not name a user of a"),
        ("rank 0=a slot=1", "the unknown option '0=a'"),
        ("a slots=2 slots=3", "the unknown option 'slots=3'"),
        ("a slots", "'' ranks for a"),
        ("-oProxyCommand=x", "is not a host's name"),
        ("a;reboot", "is not a host's name"),
        ("a colour=2", "the unknown option 'colour=2'"),
        ("a\0b", "is not a hostfile"),
    ],
)
def test_a_bad_hostfile_is_said_in_a_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(VicinalError, match=complaint):
        read_hostfile(file)


def test_a_hostfile_that_cannot_be_read(vicinal: Vicinal, tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        result = vicinal("run", "-n", 2, "--hostfile", path, "true")
        assert f"cannot read the hostfile {path}: {reason}" in error_line(result)
    assert "not a host's name" in error_line(vicinal("run", "-n", 2, "--hosts", "a,,b", "true"))


def test_ranks_are_spread_over_slots() -> None:
    assert spread(5, [Host("a"), Host("b")]) == [Placement("a", 3), Placement("b", 2)]
    assert spread(3, [Host("a", 2), Host("b", 2)]) == [Placement("a", 2), Placement("b", 1)]
    assert spread(2, [Host("a", 2), Host("b")]) == [Placement("a", 2)]
    with pytest.raises(VicinalError, match="slots for 3 ranks, and the job has 4"):
        spread(4, [Host("a", 2), Host("b")])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--nodes", "2"], "--nodes creates isolated nodes of this host"),
        (["--region", "file:/dev/shm/x"], "gets its own region"),
        (["--path", "shared-memory"], "does not connect different hosts"),
        (["--bind"], "--bind pins ranks to cores of this host"),
        (["--hostfile", "x"], "leave out all but one of them"),
    ],
)
def test_what_does_not_go_with_hosts(vicinal: Vicinal, options: list[str], complaint: str) -> None:
    result = vicinal("run", "-n", 2, "--hosts", "a,b", *options, "true")
    assert complaint in error_line(result)


def test_what_hosts_say_is_put_together_and_made_fit_for_a_terminal() -> None:
    one = JobTraffic("job", {0: "a"}, [PairTraffic(0, 1, "region", 1, 8)], {}, [])
    hostile = one.to_dict() | {"label": "\x1b[2Jx", "hostnames": {"1": "\x07" * 100}}
    other = JobTraffic.from_dict(hostile)
    assert (other.label, other.hostnames) == ("?[2Jx", {1: "?" * 64})
    both = merge_traffic([one, other])
    assert both.pairs == [PairTraffic(0, 1, "region", 2, 16)]
    for nonsense in ({}, {"label": 1, "hostnames": [], "pairs": 3}, {"label": "", "pairs": [{}]}):
        with pytest.raises(ValueError, match="not a job's traffic"):
            JobTraffic.from_dict(nonsense)


# --- jobs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_answers_are_right_over_hosts(hosts: Hosts, tmp_path: Path, mpi: str) -> None:
    """Two ranks on each of two hosts: neighbours use their host's region, others the network."""
    file = tmp_path / "hosts"
    file.write_text("node0 slots=2\nnode1:2\n")
    program = CHECKOUT / "build/programs" / mpi / "verify"
    result = hosts.vicinal(
        *("run", "-n", 4, "--hostfile", file, "--paths", "--timeout", 110),
        *(program, "--max-size", 300000),
    )
    assert result.returncode == 0, result.stderr
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10
    assert not [each for each in checks if each["errors"]]
    check_paths(result.stderr, (0, 0, 1, 1))
    assert hosts.leftovers() == {}


@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_ranks_are_where_they_are_asked_to_be(
    hosts: Hosts, programs: dict[str, Path], mpi: str
) -> None:
    result = hosts.vicinal("run", "-n", 3, "--hosts", "node1,node0", programs[mpi], "report")
    assert result.returncode == 0, result.stderr
    check_reports(result.stdout, ["node1", "node1", "node0"])
    assert hosts.leftovers() == {}


_FILES = """
import sys
from vicinal.launch.host_job import HostJob
from vicinal.cluster.hosts.remote.hosts import Host
from vicinal.mpi.job import Job

files = {"in.dat": "what \'it\' says $HOME\\n", "more.txt": "x" * 200_000}
program = ["/bin/sh", "-c", "echo $(uname -n): $(cat in.dat) $(wc -c <more.txt)"]
job = Job(program, ranks=4, path=sys.argv[1], files=files)
with HostJob(job, [Host("node0"), Host("node1")]) as running:
    sys.exit(running.wait(60))
"""


@pytest.mark.parametrize("path", ["region", pytest.param("network", marks=pytest.mark.long)])
def test_files_of_a_job_are_on_all_hosts(hosts: Hosts, path: str) -> None:
    """Each host has a directory of its own for the ranks, which is removed with the job."""
    done = hosts.at_head(sys.executable, "-c", _FILES, path)
    assert done.returncode == 0, done.stderr
    wanted = [f"{name}: what 'it' says $HOME 200000" for name in ("node0", "node1")]
    assert sorted(done.stdout.splitlines()) == sorted(2 * wanted)
    nothing_left(hosts, hosts.names)


def test_a_name_that_no_file_can_have(hosts: Hosts) -> None:
    done = hosts.at_head(
        sys.executable, "-c", _FILES.replace('more.txt"', '../more.txt"'), "network"
    )
    assert "'../more.txt' cannot be the name of a job's file" in done.stderr
    nothing_left(hosts, hosts.names)


def test_the_exit_status_is_the_programs(hosts: Hosts, programs: dict[str, Path]) -> None:
    result = hosts.vicinal("run", "-n", 2, "--hosts", "node0,node1", programs["mpich"], "exit", 3)
    assert result.returncode == 3, result.stderr


def test_this_host_needs_no_ssh(vicinal: Vicinal, programs: dict[str, Path]) -> None:
    result = vicinal("run", "-n", 2, "--hosts", "localhost", programs["mpich"], "report", PATH="")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("nosuch", "host nosuch: ssh does not reach it (Could not resolve hostname nosuch"),
        ("10.0.77.77", "host 10.0.77.77: ssh does not reach it (connect to host 10.0.77.77"),
        (
            "10.0.255.254",
            "host 10.0.255.254: ssh does not reach it (connect to host 10.0.255.254 port 22: Conn",
        ),
    ],
    ids=["unknown", "unreachable", "refused"],
)
def test_a_host_that_ssh_does_not_reach(hosts: Hosts, host: str, reason: str) -> None:
    """The message has the host's name and ssh's reason. The other host is unchanged."""
    result = hosts.vicinal("run", "-n", 2, "--hosts", f"node0,{host}", "true")
    assert reason in error_line(result)
    assert hosts.leftovers() == {}


def test_a_host_without_vicinal(own_hosts: Hosts, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    python = Path(sys.executable)
    own_hosts.cluster.run_in("node1", ["mount", "--bind", str(nothing), str(python.parent)])
    result = own_hosts.vicinal("run", "-n", 2, "--hosts", "node0,node1", "true")
    line = error_line(result)
    assert "host node1: Vicinal is not installed at the same path as on this host" in line
    assert f"install {python} and {CHECKOUT} there too" in line
    assert own_hosts.leftovers() == {}


def test_a_host_without_the_program(own_hosts: Hosts, programs: dict[str, Path]) -> None:
    program = programs["mpich"]
    own_hosts.cluster.run_in("node1", ["mount", "-t", "tmpfs", "none", str(program.parent)])
    result = own_hosts.vicinal("run", "-n", 2, "--hosts", "node0,node1", program)
    assert f"host node1: it has no {program}" in error_line(result)


def test_a_host_with_another_version(own_hosts: Hosts, tmp_path: Path) -> None:
    module = tmp_path / "__init__.py"
    module.write_text('__version__ = "0.0.1"\n')
    path = str(CHECKOUT / "src/vicinal/__init__.py")
    own_hosts.cluster.run_in("node1", ["mount", "--bind", str(module), path])
    line = error_line(own_hosts.vicinal("run", "-n", 2, "--hosts", "node0,node1", "true"))
    assert "host node1: it has Vicinal 0.0.1, but version " in line


def test_a_host_that_does_not_know_the_launcher_of_mpich(own_hosts: Hosts, tmp_path: Path) -> None:
    """MPICH's daemons get the launcher's name; without an address they end with five lines."""
    (tmp_path / "hosts-file").write_text("127.0.0.1 localhost\n")
    own_hosts.cluster.run_in(
        "node1", ["mount", "--bind", str(tmp_path / "hosts-file"), "/etc/hosts"]
    )
    words = ("run", "-n", 2, "--hosts", "node0,node1", "true")
    line = error_line(own_hosts.vicinal(*words))
    assert "host node1: it cannot resolve 'head', the name by which the launcher of MPICH" in line
    assert "or set HYDRA_IFACE to the network interface of 'head'" in line
    assert own_hosts.leftovers() == {}
    done = own_hosts.vicinal(*words, HYDRA_IFACE=BRIDGE)
    assert done.returncode == 0, done.stderr


# --- ends ----------------------------------------------------------------------------------


def start_waiting(
    hosts: Hosts, program: Path, output: Path, **variables: str
) -> subprocess.Popen[bytes]:
    """A job whose ranks wait for ever, two on each host."""
    with output.open("w") as stream:
        running = subprocess.Popen(
            hosts.command("run", "-n", 4, "--hosts", "node0:2,node1:2", program, "wait"),
            env=hosts.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    wait_for(output, "ready")
    return running


@pytest.mark.parametrize(
    ("mpi", "number"),
    [
        ("mpich", signal.SIGINT),
        ("mpich", signal.SIGKILL),
        ("openmpi", signal.SIGTERM),
        ("openmpi", signal.SIGKILL),
    ],
)
def test_a_command_that_ends_leaves_nothing_on_the_hosts(
    hosts: Hosts,
    programs: dict[str, Path],
    tmp_path: Path,
    mpi: str,
    number: signal.Signals,
) -> None:
    """Even a killed command leaves nothing: the agents notice the end of their connection."""
    running = start_waiting(hosts, programs[mpi], tmp_path / "output")
    hosts.cluster.signal_command(running, number)
    status = running.wait(GUARD_SECONDS)
    assert status == (-number if number is signal.SIGKILL else 128 + number)
    nothing_left(hosts, hosts.names)


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_host_that_dies_ends_the_job(
    own_hosts: Hosts, programs: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    """All its processes die at once, sshd too. An MPI job with fatal errors then ends."""
    output = tmp_path / "output"
    running = start_waiting(own_hosts, programs[mpi], output)
    signal_all(own_hosts.cluster.processes("node1"), signal.SIGKILL)
    assert running.wait(GUARD_SECONDS) not in (0, -signal.SIGKILL), output.read_text()
    nothing_left(own_hosts, ["node0"])
