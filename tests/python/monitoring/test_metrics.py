"""`vicinal metrics`: names, units and labels as prometheus-client's parsers read them."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal, error_line
from launch_support import GUARD_SECONDS, REGION, long_unless, package_path
from metrics_support import served, written
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from written_region import WrittenRegion

from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob
from vicinal.monitoring.metrics import MOST_JOBS, JobsCollector
from vicinal.monitoring.sampling import Sampler
from vicinal.mpi.job import Job

MOST = (1 << 64) - 1
LABELS = {"region", "job_id", "peers", "condition", "path", "kind", "name", "version"}


def parsed(text: str) -> dict[str, Metric]:
    # The parser has no annotations.
    families = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {each.name: each for each in families}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    (found,) = [
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return found


def test_the_figures_of_a_region_are_openmetrics(vicinal: Vicinal, region_path: Path) -> None:
    written(region_path)
    result = vicinal("metrics", "--region", f"file:{region_path}")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("# EOF\n")
    found = parsed(result.stdout)
    job = {"region": str(region_path), "job_id": "7"}
    assert value(found, "vicinal_messages_total", peers="members", **job) == 14
    assert value(found, "vicinal_message_bytes_total", peers="members", **job) == 1040
    assert value(found, "vicinal_messages_total", peers="outside", **job) == 3
    assert value(found, "vicinal_message_bytes_total", peers="outside", **job) == 30
    assert value(found, "vicinal_collectives_total", **job) == 5
    assert value(found, "vicinal_collective_bytes_total", **job) == 40
    assert value(found, "vicinal_one_sided_operations_total", **job) == 2
    assert value(found, "vicinal_one_sided_bytes_total", **job) == 16
    assert value(found, "vicinal_job_ranks", **job) == 3
    assert value(found, "vicinal_job_asleep_ranks", **job) == 1
    assert value(found, "vicinal_job_members", condition="dead", **job) == 1
    assert value(found, "vicinal_job_members", condition="unknown", **job) == 2
    assert value(found, "vicinal_job_pairs", path="region", **job) == 1
    assert value(found, "vicinal_job_pairs", path="network", **job) == 1
    assert value(found, "vicinal_job_faults", kind="dead", **job) == 1
    assert value(found, "vicinal_job_faults", kind="violation", **job) == 0
    assert value(found, "vicinal_job_info", name='a "solver"\\', **job) == 1
    assert value(found, "vicinal_region_slots", region=str(region_path)) == 4
    assert value(found, "vicinal_region_free_slots", region=str(region_path)) == 2
    assert value(found, "vicinal_region_size_bytes") == region_path.stat().st_size
    assert value(found, "vicinal_unreadable_regions") == 0


def test_names_and_units_follow_the_conventions(vicinal: Vicinal, region_path: Path) -> None:
    written(region_path)
    found = parsed(vicinal("metrics", "--region", f"file:{region_path}").stdout)
    assert len(found) > 15
    for name, family in found.items():
        assert re.fullmatch(r"vicinal(_[a-z]+)+", name)
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "info")
        assert family.unit in ("", "bytes", "seconds")
        assert name.endswith(("_bytes", "_seconds")) == bool(family.unit), name
        for sample in family.samples:
            assert set(sample.labels) <= LABELS


def test_series_are_bounded_whatever_members_write(region_path: Path) -> None:
    """Each of 300 members lies about its job, and about all else."""
    region = WrittenRegion(region_path, members=300, label="\x1b[2J")
    for slot in range(300):
        region.join(slot, rank=slot, job=slot + 1, collectives=MOST, hostname=b'\n"' * 30)
        region.connect(slot, (slot + 1) % 300, messages=MOST, bytes=MOST)
    registry = CollectorRegistry()
    registry.register(JobsCollector(Sampler(lambda: [region_path])))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    series = [each for family in families for each in family.samples]
    assert len(series) < 30 * (MOST_JOBS + 1)
    messages = [each for each in series if each.name == "vicinal_messages_total"]
    assert len(messages) == 2 * (MOST_JOBS + 1)
    assert sum(each.value for each in messages) == pytest.approx(300.0 * MOST)
    assert {each.labels["job_id"] for each in messages} >= {"1", "16", "other"}


def test_a_torn_region_is_counted(region_path: Path, tmp_path: Path) -> None:
    written(region_path)
    torn = tmp_path / "torn"
    torn.write_bytes(region_path.read_bytes()[:9000])
    registry = CollectorRegistry()
    registry.register(JobsCollector(Sampler(lambda: [torn, region_path])))
    assert registry.get_sample_value("vicinal_unreadable_regions") == 1
    job = {"region": str(region_path), "job_id": "7"}
    assert registry.get_sample_value("vicinal_job_ranks", job) == 3


def test_a_textfile_is_replaced_in_one_step(
    vicinal: Vicinal, region_path: Path, tmp_path: Path
) -> None:
    region = written(region_path)
    words = ("metrics", "--region", f"file:{region_path}", "--textfile", tmp_path)
    for messages in (10, 11):
        region.connect(0, 1, messages=messages, bytes=1000)
        result = vicinal(*words)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        (file,) = tmp_path.iterdir()
        assert file.name == "vicinal.prom"
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        families = list(text_string_to_metric_families(file.read_text()))
        by_name = {each.name: each for each in families}
        assert by_name["vicinal_messages"].type == "counter"
        sums = [s for s in by_name["vicinal_messages"].samples if s.labels["peers"] == "members"]
        assert [each.value for each in sums] == [messages + 4]


def test_what_cannot_be_is_one_line(vicinal: Vicinal, tmp_path: Path) -> None:
    assert "there is no folder" in error_line(vicinal("metrics", "--textfile", tmp_path / "none"))
    assert "exclude each other" in error_line(
        vicinal("metrics", "--textfile", tmp_path, "--listen", "127.0.0.1:0")
    )
    for wrong in ("9709", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "here:9709", ":9709"):
        assert "is not an address and a port" in error_line(vicinal("metrics", "--listen", wrong))
    for other in ("0.0.0.0:9709", "192.0.2.1:9709", "[::]:9709"):
        assert "not a loopback address" in error_line(vicinal("metrics", "--listen", other))
    assert "there is no region" in error_line(vicinal("metrics", "--region", "file:/none"))
    (tmp_path / "vicinal.prom").mkdir()
    assert "cannot write" in error_line(vicinal("metrics", "--textfile", tmp_path))


def test_a_port_in_use_is_one_line(vicinal: Vicinal, region_path: Path) -> None:
    written(region_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = vicinal("metrics", "--region", f"file:{region_path}", "--listen", address)
    assert "address already in use: choose another port" in error_line(result)


def fetch(url: str, accept: str = "application/openmetrics-text; version=1.0.0") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=GUARD_SECONDS) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_each_scrape_is_a_new_sample(region_path: Path) -> None:
    region = written(region_path)
    with served("127.0.0.1:0", "--region", f"file:{region_path}") as (url, process):
        kind, first = fetch(url)
        assert kind.startswith("application/openmetrics-text")
        region.connect(0, 1, messages=20, bytes=2000)
        _, second = fetch(url)
        counts = [
            value(parsed(each), "vicinal_messages_total", peers="members")
            for each in (first, second)
        ]
        assert counts == [14, 24]
        kind, text = fetch(url, accept="text/plain")
        assert kind.startswith("text/plain")
        assert list(text_string_to_metric_families(text))
        region_path.unlink()
        assert "vicinal_messages_total" not in fetch(url)[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD_SECONDS) == 128 + signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("path", [REGION])
@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in ("mpich", "openmpi")]
)
def test_a_running_job_counts_up(mpi: str, path: str) -> None:
    soak = CHECKOUT / "build/programs" / mpi / "soak"
    job = Job([str(soak), "60"], ranks=2, path=path)
    with (
        EphemeralCluster(nodes=2) as cluster,
        served("127.0.0.1:0") as (url, _),
        RunningJob(job, cluster),
    ):
        last = 0.0
        deadline = time.monotonic() + GUARD_SECONDS
        for _ in range(3):
            now = last
            while now <= last:
                assert time.monotonic() < deadline
                now = messages_of("soak", parsed(fetch(url)[1]))
            last = now
    assert last > 0


def messages_of(name: str, families: dict[str, Metric]) -> float:
    """The messages between members of the jobs with a name, by their numbers."""
    jobs = {
        (each.labels["region"], each.labels["job_id"])
        for each in families["vicinal_job"].samples
        if each.labels["name"] == name
    }
    return sum(
        each.value
        for each in families["vicinal_messages"].samples
        if (each.labels["region"], each.labels["job_id"]) in jobs
    )


def test_without_the_library_the_extra_is_named(region_path: Path) -> None:
    written(region_path)
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from vicinal.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "metrics", "--region", f"file:{region_path}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    line = error_line(result)
    assert "by pip as vicinal[metrics]" in line
    assert "python3-prometheus-client" in line
