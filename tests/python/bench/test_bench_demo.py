"""Short real runs of `vicinal demo` and `vicinal bench`. The tests assert no speed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import psutil
import pytest
from command_support import CHECKOUT, Vicinal, error_line

from vicinal.labs.bench.bars import load_groups
from vicinal.labs.bench.plot import plot_demo
from vicinal.labs.bench.schema import validate

SVG = "{http://www.w3.org/2000/svg}"


DEMO_SECONDS = 600.0
"""A guard against hangs: a demonstration starts dozens of jobs."""

pytestmark = pytest.mark.timeout(2 * DEMO_SECONDS)


def vicinal_by_itself(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command in its own process, because several tests inspect the same run."""
    return subprocess.run(
        [sys.executable, "-m", "vicinal", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )


TITLES = {"mpich": "MPICH", "openmpi": "Open MPI"}
BOTH = ("mpich", "openmpi")
TRIALS = {("mpich",): 1, BOTH: 2}
"""Trials of each quantity: each trial starts its own job, which takes seconds."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("mpich",), id="mpich"),
        pytest.param(BOTH, id="both", marks=pytest.mark.long),
    ],
)
def mpis(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The MPI libraries that a short demo measures: both take twice as long."""
    given: tuple[str, ...] = request.param
    return given


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, mpis: tuple[str, ...]) -> tuple[str, Path]:
    """A short demo's output, and the directory that the demo wrote."""
    directory = tmp_path_factory.mktemp("demo")
    done = vicinal_by_itself(
        *("demo", "--sizes", "8,4096,1048576", *(() if mpis == BOTH else ("--mpi", *mpis))),
        *("--trials", TRIALS[mpis], "--seconds", "0.002", "--output", directory),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, directory


def result_of(demo: tuple[str, Path]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((demo[1] / "result.json").read_text())
    return result


def test_the_result_holds_every_path_of_each_mpi(
    demo: tuple[str, Path], mpis: tuple[str, ...]
) -> None:
    result = result_of(demo)
    validate(result, "demo")
    seen = {
        (line["scenario"]["mpi"], line["scenario"]["path"], line["scenario"]["cma"], line["metric"])
        for line in result["series"]
    }
    assert seen == {
        (mpi, path, cma, metric)
        for mpi in mpis
        for path, cma in (
            ("network", None),
            ("region", None),
            ("shared-memory", True),
            ("shared-memory", False),
        )
        for metric in ("latency", "bandwidth")
    }


def test_every_value_of_every_trial_is_kept(demo: tuple[str, Path], mpis: tuple[str, ...]) -> None:
    for line in result_of(demo)["series"]:
        assert [point["size"] for point in line["points"]] == [8, 4096, 1048576]
        assert all(len(point["raw"]) == TRIALS[mpis] for point in line["points"])


def test_ranks_were_where_the_result_says(demo: tuple[str, Path]) -> None:
    for line in result_of(demo)["series"]:
        alone = line["scenario"]["path"] != "shared-memory"
        assert line["hosts"] == (["node0", "node1"] if alone else ["node0", "node0"])


def test_the_output_is_a_table_and_says_where_the_rest_is(
    demo: tuple[str, Path], mpis: tuple[str, ...]
) -> None:
    output, directory = demo
    for mpi in mpis:
        for title in ("latency [µs]", "bandwidth [MB/s]"):
            assert f"{TITLES[mpi]}: {title}" in output
    for size in ("8 B", "4 KiB", "1 MiB"):
        assert output.count(f"{size} ") >= 2 * len(mpis)
    for name in ("plot.png", "plot.svg", "result.json"):
        assert f"Written: {directory / name}" in output
    assert "…" not in output  # the demo cut nothing off at 80 columns
    assert max(map(len, output.splitlines())) <= max(80, len(str(directory)) + 30)


def test_the_figures_can_be_opened_and_show_every_line(
    demo: tuple[str, Path], mpis: tuple[str, ...]
) -> None:
    image = matplotlib.image.imread(demo[1] / "plot.png")
    assert min(image.shape[:2]) > 800
    assert len({tuple(pixel) for pixel in image[::7, ::7].reshape(-1, image.shape[2])}) > 10
    texts = {node.text for node in ElementTree.parse(demo[1] / "plot.svg").iter(f"{SVG}text")}
    assert {
        "network (TCP), two nodes",
        "region (Vicinal), two nodes",
        "own shared memory with CMA, one node",
        "own shared memory without CMA, one node",
        *(f"{TITLES[mpi]}: half a round trip" for mpi in mpis),
        *(f"{TITLES[mpi]}: one-way bandwidth" for mpi in mpis),
    } <= texts
    assert any(text and "[µs]" in text for text in texts)
    assert any(text and "[MB/s]" in text for text in texts)


def test_a_figure_of_one_mpi_leaves_the_other_out(demo: tuple[str, Path], tmp_path: Path) -> None:
    result = result_of(demo)
    result["series"] = [line for line in result["series"] if line["scenario"]["mpi"] == "mpich"]
    plot_demo(result, [tmp_path / "one.svg"])
    text = (tmp_path / "one.svg").read_text()
    assert "MPICH: half a round trip" in text
    assert "Open MPI" not in text


@pytest.mark.parametrize("sizes", ["eight", "", "8,,9", "0", "-8"])
def test_sizes_that_are_none_are_a_wrong_call(vicinal: Vicinal, sizes: str) -> None:
    result = vicinal("demo", f"--sizes={sizes}")
    assert result.returncode == 2
    assert "no list of sizes" in error_line(result)


def test_ctrl_c_ends_a_demo_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vicinal", "demo", "--sizes", "8,65536"]
    process = subprocess.Popen(
        [*command, "--output", str(tmp_path / "demo")],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[0/48]")
    assert process.stderr.readline()  # the demo is measuring now
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert not (tmp_path / "demo").exists()


def test_bench_lists_its_rows(vicinal: Vicinal) -> None:
    result = vicinal("bench", "--list")
    assert result.returncode == 0
    for group in load_groups():
        assert all(bar.name in result.stdout for bar in group.bars)


def short_bench(
    vicinal: Vicinal, output: Path, *more: object
) -> "subprocess.CompletedProcess[str]":
    result = vicinal(
        *("bench", "--issue", 2, "--only", "latency-*", "--trials", 2, "--repetitions", 1),
        *("--seconds", 0.001, "--output", output, *more),
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A short bench's output and its directory, which tests must not change."""
    directory = tmp_path_factory.mktemp("bench")
    return short_bench(vicinal_by_itself, directory).stdout, directory


def test_bench_writes_a_row_for_each_bar_it_was_asked_for(benched: tuple[str, Path]) -> None:
    shown, directory = benched
    written = json.loads((directory / "result.json").read_text())
    validate(written, "bench")
    assert [row["name"] for row in written["rows"]] == ["latency-openmpi-8B", "latency-mpich-8B"]
    for row in written["rows"]:
        assert row["name"] in shown
        assert row["trials"] == len(row["ours"]["raw"]) == len(row["theirs"]["raw"]) == 2
        assert row["ours"]["hosts"] == ["node0", "node1"]
        assert row["theirs"]["hosts"] == ["node0", "node0"]
        assert len(row["ours"]["line_ns"]) == 2
    assert written["limits"]


@pytest.mark.long
def test_bench_goes_on_with_what_was_finished_under_the_same_conditions(
    vicinal: Vicinal, benched: tuple[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(benched[1], tmp_path, dirs_exist_ok=True)
    first = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "partial" / "native-mpich.json").unlink()
    short_bench(vicinal, tmp_path, "--resume")
    kept, made = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert kept == first["rows"][0]
    assert made != first["rows"][1]
    again = "--only", "latency-mpich-8B", "--resume", "--repetitions", 2
    result = short_bench(vicinal, tmp_path, *again)
    assert "measured anew: native: repetitions was 1, is 2" in result.stderr
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert all(len(row["ours"]["raw"][0]) == 2 for row in rows)


def test_bench_that_is_ended_says_how_to_go_on_and_leaves_nothing(tmp_path: Path) -> None:
    """The test sends SIGTERM, as batch systems do; Ctrl-C takes the same code path."""
    command = ["bench", "--issue", "2", "--only", "latency-*", "--seconds", "0.001"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vicinal", *command, "--output", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("[0/37]")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "vicinal: interrupted; 0 of 2 groups are kept: go on with --resume" in errors
    # The bound is generous, because the init process reaps a child if its parent has just ended.
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert not (tmp_path / "result.json").exists()


@pytest.mark.long
def test_bench_reads_memory_from_the_region(vicinal: Vicinal, tmp_path: Path) -> None:
    result = vicinal("bench", "--only", "memory", "--repetitions", 1, "--output", tmp_path)
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    idle, rings = (row for row in rows if row["name"].endswith("-openmpi"))
    assert idle["name"] == "idle-endpoint-openmpi"
    assert idle["ours"]["raw"] == [[idle["measured"]["value"]]]
    # Byte counts do not depend on the machine, so every machine meets these bars.
    assert idle["met"] is True
    assert rings["met"] is True
    assert rings["ours"]["detail"]["connections"] < rings["theirs"]["detail"]["connections"]


def test_bench_knows_no_row_of_that_name(vicinal: Vicinal) -> None:
    result = vicinal("bench", "--only", "nonsense")
    assert "there is no row named nonsense: see `vicinal bench --list`" in error_line(result)
