"""What is reported about the paths that pairs of ranks use."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import pytest
from command_support import Vicinal, error_line
from launch_support import GUARD_SECONDS, MPIS, ONE_MPI, REGION, long_unless, package_path
from rich.console import Console

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.paths import traffic_of
from vicinal.launch.paths_command import paths_table
from vicinal.launch.running import launch
from vicinal.mpi.job import Job
from vicinal.mpi.traffic import (
    JobTraffic,
    PairTraffic,
    job_traffic,
    merge_traffic,
    pair_traffic,
)
from vicinal.region import Beyond, Connection, Header, Member, RegionState, create
from vicinal.region.format import Liveness, Route, SlotState
from vicinal.region.inspection import DirectCounts

needs_provider = pytest.mark.parametrize("path", [REGION])

LABEL_OFFSET = 64
HIDDEN_CURSOR_BACK = b"\x1b[?25h"

BYTES_AROUND_THE_RING = 2 * (1 << 20) - 1
"""What `launch_ranks report` sends to its neighbour."""


def member(slot: int, rank: int | None, *, epoch: int = 1, endpoint: int = 0) -> Member:
    return Member(
        slot=slot,
        epoch=epoch,
        state=SlotState.JOINED,
        alive=True,
        liveness=Liveness.LOCK,
        rank=rank,
        pid=5,
        hostname=f"host{rank}",
        endpoint=endpoint,
        arena_used=0,
        section_epoch=epoch,
    )


def connection(
    sender: int, receiver: int, messages: int, count: int, *, epoch: int = 1
) -> Connection:
    return Connection(sender, receiver, epoch, 64, 8192, messages, count)


def state(members: list[Member], connections: list[Connection]) -> RegionState:
    header = Header(1, 8, 1 << 20, 1 << 17, 0, "00", datetime.now(UTC), "program")
    return RegionState(
        "/region", 1 << 20, 1 << 20, 0, 0o600, 0, 0, header, tuple(members), tuple(connections)
    )


def shown_traffic(traffic: JobTraffic) -> str:
    output = io.StringIO()
    Console(width=120, file=output).print(paths_table(traffic))
    return output.getvalue()


def shown(region: RegionState) -> str:
    return shown_traffic(job_traffic(region))


def test_the_endpoints_of_a_rank_are_added_up() -> None:
    region = state(
        [member(0, 0), member(1, 0, endpoint=1), member(2, 1)],
        [connection(0, 2, 10, 1000), connection(1, 2, 5, 50), connection(2, 0, 1, 8)],
    )
    assert pair_traffic(region) == [
        PairTraffic(0, 1, "region", 15, 1050),
        PairTraffic(1, 0, "region", 1, 8),
    ]


def test_calls_without_messages_are_added_up_and_travel() -> None:
    first, second = (
        replace(member(slot, 0, endpoint=slot), direct=DirectCounts(3, 24, 2, 16))
        for slot in range(2)
    )
    traffic = job_traffic(state([first, second, member(2, 1)], []))
    assert traffic.direct == {0: DirectCounts(6, 48, 4, 32)}
    assert JobTraffic.from_dict(traffic.to_dict()) == traffic
    rows = [line.replace("│", " ").split() for line in shown_traffic(traffic).splitlines()]
    assert [
        "0",
        "host0",
        "communicators",
        "region,",
        "collectives",
        "6",
        "calls",
        "48",
        "B",
    ] in rows
    assert ["0", "host0", "windows", "region,", "one-sided", "4", "calls", "32", "B"] in rows


def test_a_connection_to_an_earlier_owner_of_a_slot_does_not_count() -> None:
    region = state([member(0, 0), member(1, 1, epoch=2)], [connection(0, 1, 10, 1000)])
    assert pair_traffic(region) == []


def test_members_without_a_rank_are_left_out() -> None:
    region = state([member(0, None), member(1, 1)], [connection(0, 1, 10, 1000)])
    assert pair_traffic(region) == []


def test_a_pair_that_moved_to_the_network_is_shown_there() -> None:
    moved = replace(connection(0, 1, 10, 100), route=Route.NETWORK)
    region = state([member(0, 0), member(1, 1)], [moved, connection(1, 0, 5, 50)])
    assert [(pair.sender, pair.path) for pair in pair_traffic(region)] == [
        (0, "network"),
        (1, "region"),
    ]


def test_jobs_in_one_region_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of both jobs have the same numbers. An ended job shows only if no job runs."""
    first = [replace(member(slot, slot), job=7, alive=None) for slot in range(2)]
    first = [replace(each, state=SlotState.FREE) for each in first]
    second = [replace(member(2 + rank, rank), job=9) for rank in range(2)]
    sent = [connection(0, 1, 10, 1000), connection(2, 3, 5, 50)]
    both = replace(state([*first, *second], sent), beyond=(Beyond(0, 12, 3, 24),))
    seen = {"both": both, "ended": replace(both, members=(*first,))}
    monkeypatch.setattr("vicinal.launch.paths.inspect", lambda path, **_: seen[str(path)])
    assert [each.pairs for each in traffic_of([Path("both")])] == [
        [PairTraffic(0, 1, "region", 5, 50)]
    ]
    (ended,) = traffic_of([Path("ended")])
    assert ended.pairs == [PairTraffic(0, 1, "region", 10, 1000)]
    assert [each.messages for each in ended.beyond] == [3]
    two = replace(both, members=(*(replace(member(s, s), job=7) for s in range(2)), *second))
    seen["two"] = two
    assert [each.pairs[0].messages for each in traffic_of([Path("two")])] == [10, 5]


def test_the_table_counts_pairs_that_did_not_talk() -> None:
    region = state([member(r, r) for r in range(3)], [connection(0, 1, 10, 2048)])
    text = shown(region)
    assert "host0" in text
    assert "2.0 KiB" in text
    assert "5 of the pairs of 3 ranks have exchanged no messages" in text


def test_peers_beyond_a_region_are_found_in_the_other_region() -> None:
    """Peers are found by their nonces. For peers in neither region, only the sum is known."""
    one = replace(
        state([replace(member(0, 0), nonce=10), replace(member(1, 1), nonce=11)], []),
        beyond=(Beyond(0, 12, 3, 24), Beyond(0, 99, 5, 50), Beyond(0, 98, 1, 1)),
    )
    other = replace(state([replace(member(0, 2), nonce=12)], []), beyond=(Beyond(0, 11, 7, 56),))
    both = merge_traffic([job_traffic(one), JobTraffic.from_dict(job_traffic(other).to_dict())])
    assert both.pairs == [PairTraffic(0, 2, "network", 3, 24), PairTraffic(2, 1, "network", 7, 56)]
    assert [(each.sender, each.messages) for each in both.beyond] == [(0, 5), (0, 1)]
    rows = [line.split("│") for line in shown_traffic(both).splitlines() if "others" in line]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["0", "host0", "2 others", "other hosts", "network", "6", "51 B"]
    ]


def test_names_are_shown_as_they_are() -> None:
    """Members write these names, so they are not markup. As markup, they would be an error."""
    names = [replace(member(r, r), hostname=f"[/x]{r}") for r in range(2)]
    region = state(names, [connection(0, 1, 10, 2048)])
    text = shown(replace(region, header=replace(region.header, label="[/red][bold]job")))
    assert "Paths of [/red][bold]job" in text
    assert "[/x]0" in text
    assert "[/x]1" in text


def test_without_a_job_paths_says_so(vicinal: Vicinal) -> None:
    # Another user's jobs are not shown to us, and a PID namespace of our own hides our other jobs.
    result = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"),
            *(sys.executable, "-m", "vicinal", "paths"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    assert "no job of yours runs" in error_line(result)
    assert "there is no region" in error_line(vicinal("paths", "--region", "file:/dev/shm/none"))


@needs_provider
@pytest.mark.parametrize("mpi", ONE_MPI)
def test_the_region_carried_what_was_sent(programs: dict[str, Path], mpi: str, path: str) -> None:
    with EphemeralCluster(nodes=2) as cluster:
        job = Job([str(programs[mpi]), "report"], ranks=3, path=path)
        done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.region is not None
    traffic = {(pair.sender, pair.receiver): pair for pair in pair_traffic(done.region)}
    for sender, receiver in ((0, 1), (1, 2), (2, 0)):
        assert traffic[sender, receiver].messages >= 21
        assert traffic[sender, receiver].bytes >= BYTES_AROUND_THE_RING
    hosts = {m.rank: m.hostname for m in done.region.members}
    assert hosts == {0: "node0", 1: "node0", 2: "node1"}


@needs_provider
@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_run_shows_the_paths_afterwards(
    vicinal: Vicinal, programs: dict[str, Path], mpi: str, path: str
) -> None:
    result = vicinal("run", "-n", 2, "--path", path, "--paths", programs[mpi], "report")
    assert result.returncode == 0, result.stderr
    rows = [line.replace("│", " ").split() for line in result.stderr.splitlines()]
    assert ["0", "node0", "1", "node1", "region"] in [row[:5] for row in rows]
    assert ["1", "node1", "0", "node0", "region"] in [row[:5] for row in rows]


def test_run_tells_which_path_was_used_where_nothing_counts(
    vicinal: Vicinal, programs: dict[str, Path]
) -> None:
    run = ("run", "-n", 2, "--path", "network", "--paths")
    result = vicinal(*run, programs["mpich"], "report")
    assert "every pair of ranks used the path network" in result.stderr


TWO_JOBS = """
set -eu
vicinal() { "$PYTHON" -m vicinal "$@"; }
exec 3< <(vicinal run -n 2 "$1" wait)
older=$!
read -r _ <&3
sleep 1.1 # regions are dated to the second
exec 4< <(vicinal run -n 2 "$2" wait)
newer=$!
read -r _ <&4
vicinal paths
vicinal region attach
kill "$newer" "$older"
wait "$newer" "$older" || true
"""


@needs_provider
def test_the_newest_running_job_is_found(
    programs: dict[str, Path], tmp_path: Path, path: str
) -> None:
    assert path == "region"
    older, newer = tmp_path / "older", tmp_path / "newer"
    older.hardlink_to(programs["mpich"])
    newer.hardlink_to(older)
    # Run the command where other jobs of ours, which may be newer, are not visible.
    own = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
    result = subprocess.run(
        [
            *("unshare", *own, "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("bash", "-c", TWO_JOBS, "two-jobs", older, newer),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": package_path()},
    )
    assert result.returncode == 0, result.stderr
    assert "Paths of newer" in result.stdout
    assert "older" not in result.stdout
    assert "node1" in result.stdout
    assert re.search(
        r"^2 members of .*: \d+ connections go through the region$", result.stdout, re.M
    )


@needs_provider
def test_paths_shows_a_region_by_name(
    vicinal: Vicinal, programs: dict[str, Path], region_path: Path, path: str
) -> None:
    assert vicinal("region", "create", region_path).returncode == 0
    region = f"file:{region_path}"
    run = ("run", "-n", 2, "--path", path, "--region", region)
    result = vicinal(*run, programs["mpich"], "report")
    assert result.returncode == 0, result.stderr
    shown = vicinal("paths", "--region", region)
    assert "node0" in shown.stdout
    assert region_path.exists()


def watching(output: int | IO[bytes], region: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "vicinal", "paths", "--watch"),
            *("--interval", "0.1", "--region", region),
        ],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": package_path(), "TERM": "xterm"},
    )


def scribble_label(region: Path, label: bytes) -> None:
    with region.open("r+b") as file:
        file.seek(LABEL_OFFSET)
        file.write(label)


def read_until(reader: int, text: bytes) -> bytes:
    """Read until the output contains the text. Returns all that was read."""
    seen, deadline = b"", time.monotonic() + GUARD_SECONDS
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([reader], [], [], 0.1)[0]:
            seen += os.read(reader, 65536)
    return seen


def test_watching_prints_what_changed_and_ends_with_the_job(region_path: Path) -> None:
    create(region_path, members=2, label="first")
    reader, writer = os.pipe()
    with watching(writer, f"file:{region_path}") as watcher:
        os.close(writer)
        assert read_until(reader, b"first").count(b"Paths of") == 1
        scribble_label(region_path, b"again\x1b[2J")
        assert b"\x1b" not in read_until(reader, b"again?[2J")
        region_path.unlink()
        _, said = watcher.communicate(timeout=GUARD_SECONDS)
        assert (watcher.returncode, said) == (0, b"the job has ended\n")
    os.close(reader)


def test_watching_on_a_terminal_ends_cleanly_by_ctrl_c(region_path: Path) -> None:
    create(region_path, members=2, label="first")
    terminal, inner = pty.openpty()
    with watching(inner, f"file:{region_path}") as watcher:
        os.close(inner)
        read_until(terminal, b"first")
        scribble_label(region_path, b"again")
        read_until(terminal, b"again")  # in the same place: the cursor was moved
        watcher.send_signal(signal.SIGINT)
        assert HIDDEN_CURSOR_BACK in read_until(terminal, HIDDEN_CURSOR_BACK)
        _, said = watcher.communicate(timeout=GUARD_SECONDS)
        assert (watcher.returncode, said) == (128 + signal.SIGINT, b"")
    os.close(terminal)
