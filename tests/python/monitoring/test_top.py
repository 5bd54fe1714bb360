"""`vicinal top` as users call it: beside real jobs, on a terminal and without, on bad regions."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_support import CHECKOUT, Vicinal, error_line, made
from launch_support import GUARD_SECONDS, NOBODY, REGION, long_unless, package_path, scribble
from written_region import WrittenRegion

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob
from vicinal.monitoring.sampling import Sampler
from vicinal.mpi.job import Job
from vicinal.region import create

SCREEN_BACK = b"\x1b[?1049l"
"""What leaves the alternate screen."""


@contextmanager
def top(*words: object, term: str = "xterm", lines: int = 24) -> Iterator[tuple[int, Any]]:
    """Run the live view on a terminal; yields the terminal's other end, and the process."""
    terminal, inner = pty.openpty()
    resize(terminal, lines, 80)
    process = subprocess.Popen(
        [sys.executable, "-m", "vicinal", "top", "--interval", "0.1", *map(str, words)],
        stdin=inner,
        stdout=inner,
        stderr=subprocess.PIPE,
        env=os.environ
        | {"PYTHONPATH": package_path(), "TERM": term, "NO_COLOR": "1", "COLUMNS": "80"},
        start_new_session=True,
    )
    os.close(inner)
    try:
        yield terminal, process
    finally:
        process.kill()
        process.communicate(timeout=GUARD_SECONDS)
        os.close(terminal)


def resize(terminal: int, lines: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def read_until(terminal: int, text: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + GUARD_SECONDS
    while text not in seen:
        assert time.monotonic() < deadline, seen[-1500:]
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
    return seen


def written(path: Path) -> str:
    """A region with two ranks, as an option."""
    region = WrittenRegion(path, label="solver")
    for rank in range(2):
        region.join(rank, rank=rank, liveness=0)  # nobody waits for a sign of life of this kind
    region.connect(0, 1, messages=3, bytes=30)
    return f"file:{path}"


@pytest.mark.parametrize("path", [REGION])
@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "mpich")) for mpi in ("mpich", "openmpi")]
)
def test_a_running_job_is_seen(vicinal: Vicinal, mpi: str, path: str) -> None:
    """The job is found without its name, and its figures grow."""
    soak = CHECKOUT / "build/programs" / mpi / "soak"
    with EphemeralCluster(nodes=2) as cluster:
        job = Job([str(soak), "60"], ranks=2, path=path)
        with RunningJob(job, cluster):
            deadline = time.monotonic() + GUARD_SECONDS
            once = ("top", "--once", "--interval", "0.3")
            while True:
                answer = json.loads(vicinal(*once, "--json", "--filter", "soak").stdout)
                found = [each for each in answer["jobs"] if each["name"] == "soak"]
                if found and found[0]["rates"] and found[0]["rates"]["messages"]:
                    break
                assert time.monotonic() < deadline, answer
            shown = vicinal(*once, "--job", "soak")
    assert answer["format"] == 1
    assert answer["seconds"] >= 0.3
    (mine,) = found
    assert mine["ranks"] == 2
    assert {each["condition"] for each in mine["members"]} == {"alive"}
    assert {each["host"] for each in mine["members"]} == {"node0", "node1"}
    pairs = {(each["sender"], each["receiver"]): each for each in mine["pairs"]}
    assert pairs[0, 1]["path"] == "region"
    assert pairs[0, 1]["messages"] > 0
    assert mine["counts"]["one_sided"] > 0, "soak writes into windows"
    assert mine["faults"] == []
    assert "alive" in shown.stdout
    assert "1-sided" not in shown.stdout, "one job is not a table of jobs"
    assert EXCHANGE in mine["region"]


def test_one_sample_needs_no_terminal_and_no_job(vicinal: Vicinal, region_path: Path) -> None:
    create(region_path, members=2)
    result = vicinal("top", "--once", "--interval", "0.1", "--region", f"file:{region_path}")
    assert (result.returncode, result.stderr) == (0, "")
    assert "0 jobs" in result.stdout
    assert "no job runs through a region of this host now" in result.stdout


def test_a_sample_as_json_has_each_figure(vicinal: Vicinal, region_path: Path) -> None:
    region = written(region_path)
    result = vicinal("top", "--once", "--json", "--interval", "0.1", "--region", region)
    answer = json.loads(result.stdout)
    assert set(answer) == {"format", "host", "time", "seconds", "regions", "jobs", "unreadable"}
    (job,) = answer["jobs"]
    assert set(job) == {
        *("name", "job", "region", "ranks", "asleep", "arena_used", "arena_bytes"),
        *("counts", "rates", "faults", "members", "pairs"),
    }
    assert job["counts"]["messages"] == 3
    assert job["pairs"][0]["messages_per_second"] == 0


def test_what_cannot_be_is_one_line(vicinal: Vicinal, region_path: Path) -> None:
    region = written(region_path)
    here = ("--region", region)
    assert "needs a terminal: print one sample with --once" in error_line(vicinal("top", *here))
    assert "not JSON: add --once" in error_line(vicinal("top", "--json", *here))
    once = ("top", "--once", "--interval", "0.1", *here)
    assert "did you mean solver?" in error_line(vicinal(*once, "--job", "solver2"))
    assert "there is no region" in error_line(vicinal("top", "--once", "--region", "file:/none"))
    assert "device of a guest" in error_line(
        vicinal("top", "--once", "--region", "pci:0000:00:4.0")
    )
    with region_path.open("r+b") as file:
        file.truncate(6000)
    assert "is truncated" in error_line(vicinal(*once))
    region_path.write_bytes(b"x" * 9000)
    assert "is not a region" in error_line(vicinal(*once))


def test_a_region_of_another_user_is_one_line(region_path: Path) -> None:
    region = written(region_path)
    is_root = os.geteuid() == 0
    if not is_root:
        region_path.chmod(0)
    result = subprocess.run(
        [sys.executable, "-m", "vicinal", "top", "--once", "--region", region],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": package_path(), "HOME": "/nonexistent"},
        cwd="/",
        user=NOBODY if is_root else None,
        group=NOBODY if is_root else None,
        extra_groups=[] if is_root else None,
    )
    assert "permission denied: run as the region's owner" in error_line(result)


@pytest.mark.parametrize("part", ["header", "members", "tables", "everything", "cut"])
def test_a_scribbled_region_never_stops_the_reader(region_path: Path, part: str) -> None:
    """Another process writes nonsense into a region while it is read."""
    written(region_path)
    reader = Sampler(lambda: [region_path])
    with ThreadPoolExecutor() as threads:
        writer = threads.submit(scribble, made("release"), region_path, part)
        samples = 0
        while not writer.done():
            sample = reader.take()
            assert len(sample.regions) + len(sample.unreadable) <= 1
            samples += 1
        writer.result()
    assert samples > 1


def test_the_live_view_takes_keys_and_new_sizes(region_path: Path) -> None:
    region = written(region_path)
    with top("--region", region) as (terminal, process):
        seen = read_until(terminal, b"q quit")
        assert b"solver" in seen
        assert b"\x1b[3" not in seen, "a colour in spite of NO_COLOR"
        os.write(terminal, b"\r")
        read_until(terminal, b"esc all jobs")
        resize(terminal, 5, 30)
        read_until(terminal, "…".encode())
        os.write(terminal, b"q")
        assert SCREEN_BACK in read_until(terminal, SCREEN_BACK)
        assert process.wait(GUARD_SECONDS) == 0
        assert termios.tcgetattr(terminal)[3] & termios.ICANON, "the terminal's settings are back"


def test_the_live_view_ends_cleanly_by_ctrl_c(region_path: Path) -> None:
    region = written(region_path)
    with top("--region", region, "--job", "7") as (terminal, process):
        read_until(terminal, b"esc all jobs")
        region_path.unlink()
        read_until(terminal, b"the job has ended")
        process.send_signal(signal.SIGINT)
        read_until(terminal, SCREEN_BACK)
        assert process.wait(GUARD_SECONDS) == 128 + signal.SIGINT
        assert process.stderr.read() == b""


def test_a_dumb_terminal_gets_one_sample_under_the_other(region_path: Path) -> None:
    region = written(region_path)
    with top("--region", region, term="dumb") as (terminal, process):
        seen = read_until(terminal, b"solver")
        seen += read_until(terminal, b"solver")
        assert b"\x1b" not in seen
        process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD_SECONDS) == 128 + signal.SIGTERM


def test_the_live_view_goes_on_beside_a_torn_region(region_path: Path) -> None:
    region = written(region_path)
    with top("--region", region) as (terminal, process):
        read_until(terminal, b"solver")
        with region_path.open("r+b") as file:
            file.truncate(6000)
        read_until(terminal, b"not shown: region")
        assert process.poll() is None
