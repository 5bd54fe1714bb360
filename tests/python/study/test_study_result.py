"""Results of studies: folders that keep measured data whole, whatever happens to the writer."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow.dataset
import pyarrow.parquet
import pytest
import result_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch_support import package_path

from vicinal.base.errors import VicinalError
from vicinal.labs.provenance import now
from vicinal.labs.study.result.layout import SCHEMA, Figure, Trial, samples_file, trial_file
from vicinal.labs.study.result.manifest import make_manifest
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.result.samples import Series, slowest
from vicinal.labs.study.result.writing import ResultWriter
from vicinal.labs.study.workloads.record import read_recording
from vicinal.mpi.libraries import Mpi

HERE = Path(__file__).resolve().parent
WRITER = HERE / "result_writer.py"
KILLS = 10
LARGE_BYTES = 1 << 30
LARGE_CALLS, SERIES_CALLS = 300_000, 1500
"""Calls of VFs: twice those for ten million samples, and those for one series."""

TRIAL = Trial("native", "latency", 0, result_writer.STARTED, 1.5)


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return make_manifest({"name": "a study"}, [Mpi.MPICH], seed=7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "result"


@pytest.fixture
def writer(folder: Path, manifest: dict[str, Any]) -> Iterator[ResultWriter]:
    with ResultWriter.create(folder, manifest) as made:
        yield made


def series(*values: int, size: int = 8, rank: int = 0) -> Series:
    return Series(size, rank, 2, np.array(values, dtype=np.int64))


def assert_equal(left: list[Series], right: list[Series]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert (one.size, one.rank, one.messages) == (other.size, other.rank, other.messages)
        assert one.nanoseconds.dtype == other.nanoseconds.dtype == np.int64
        assert (one.nanoseconds == other.nanoseconds).all()


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_manifest_says_where_the_result_comes_from(
    folder: Path, writer: ResultWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    del writer
    manifest = open_result(folder).manifest
    assert manifest["schema"] == SCHEMA
    assert manifest["study"] == {"name": "a study"}
    assert manifest["seed"] == 7
    assert manifest["versions"]["kernel"] == os.uname().release
    assert "mpich-libfabric" in manifest["versions"]
    assert manifest["host"]["threads"] == os.cpu_count()
    assert manifest["units"]["nanoseconds"].startswith("ns")
    monkeypatch.setenv("FI_TCP_IFACE", "eth9")
    monkeypatch.setenv("A_PASSWORD", "secret")
    variables = make_manifest({"name": "x"}, [], seed=0)["variables"]
    assert variables["FI_TCP_IFACE"] == "eth9"
    assert "A_PASSWORD" not in variables


@settings(max_examples=50)
@given(st.data())
def test_what_is_added_comes_back(
    tmp_path_factory: pytest.TempPathFactory, manifest: dict[str, Any], data: st.DataObject
) -> None:
    words = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
    given_series = data.draw(
        st.lists(
            st.builds(
                lambda size, rank, messages, values: Series(
                    size, rank, messages, np.array(values, dtype=np.int64)
                ),
                st.integers(0, 1 << 32),
                st.integers(0, 1 << 20),
                st.integers(1, 1 << 20),
                st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=50),
            ),
            max_size=5,
        )
    )
    trial = Trial(
        data.draw(words),
        data.draw(words),
        data.draw(st.integers(0, 1000)),
        now(),
        data.draw(st.floats(0, 1e6)),
        conditions={"load": data.draw(st.floats(0, 100))},
        figures=(
            Figure(
                data.draw(words),
                data.draw(st.floats(allow_nan=False, allow_infinity=False)),
                "GFLOPS",
            ),
        ),
    )
    folder = tmp_path_factory.mktemp("round") / "result"
    with ResultWriter.create(folder, manifest) as writer:
        stored = writer.add(trial, given_series)
    result = open_result(folder)
    assert result.problems == []
    assert result.trials == [stored]
    assert result.trials[0].trial == trial
    assert_equal(list(result.series(stored)), given_series)
    shutil.rmtree(folder)


def test_recorded_output_becomes_a_trial(folder: Path, writer: ResultWriter) -> None:
    recording = read_recording((HERE.parent / "recorded/bcast-openmpi.txt").read_text())
    writer.add(TRIAL, recording.series)
    result = open_result(folder)
    read = list(result.series(result.trials[0]))
    assert_equal(read, recording.series)
    assert (slowest(read) == slowest(recording.series)).all()


def test_a_collective_takes_as_long_as_its_slowest_rank() -> None:
    ranks = [series(5, 9, 4), series(7, 2, 4, rank=1), series(6, 3, 8, rank=2)]
    assert slowest(ranks).tolist() == [7, 9, 8]
    assert ranks[0].nanoseconds.tolist() == [5, 9, 4]
    with pytest.raises(VicinalError, match="ranks have different numbers of samples"):
        slowest([series(5), series(5, 6, rank=1)])


def test_sizes_and_ranks_are_read_alone(folder: Path, writer: ResultWriter) -> None:
    every = [series(size, rank, size=size, rank=rank) for size in (8, 64) for rank in (0, 1)]
    stored = writer.add(TRIAL, every)
    result = open_result(folder)
    assert sorted({each.size for each in result.series(stored)}) == [8, 64]
    assert_equal(list(result.series(stored, sizes=[64])), every[2:])
    assert_equal(list(result.series(stored, ranks=[1])), every[1::2])
    assert_equal(list(result.series(stored, sizes=[8], ranks=[1])), [every[1]])
    assert list(result.series(stored, sizes=[1])) == []


def test_all_samples_are_one_table_for_other_programs(folder: Path, writer: ResultWriter) -> None:
    writer.add(TRIAL, [series(5, 6), series(7, size=64)])
    writer.add(Trial("guests", "latency", 1, now(), 1.0), [series(8)])
    table = pyarrow.dataset.dataset(folder / "samples").to_table()
    assert table.to_pydict() == {
        "environment": ["native", "native", "native", "guests"],
        "workload": ["latency"] * 4,
        "block": [0, 0, 0, 1],
        "trial": [1, 1, 1, 2],
        "size": [8, 8, 64, 8],
        "rank": [0] * 4,
        "messages": [2] * 4,
        "iteration": [0, 1, 0, 0],
        "nanoseconds": [5, 6, 7, 8],
    }


def test_a_failed_trial_keeps_its_output(folder: Path, writer: ResultWriter) -> None:
    stored = writer.add_failure(TRIAL, "it hung", {"stdout": b"half a li", "stderr": b"\xff"})
    result = open_result(folder)
    assert result.trials == [stored]
    assert result.trials[0].failure == "it hung"
    assert list(result.series(stored)) == []
    assert result.output(stored, "000001.stdout") == "half a li"
    assert result.output(stored, "000001.stderr") == "\ufffd"
    (folder / "outputs/000001.stdout").unlink()
    with pytest.raises(VicinalError, match=r"output 000001[.]stdout of trial 1 cannot be read"):
        result.output(stored, "000001.stdout")


def test_a_summary_has_its_units_and_is_replaced(folder: Path, writer: ResultWriter) -> None:
    with pytest.raises(
        VicinalError, match=r"summary[.]json cannot be read .*with vicinal study report"
    ):
        open_result(folder).summary()
    writer.add(TRIAL, [series(5)])
    for warning in ("the first", "the second"):
        writer.write_summary({"warnings": [warning]}, {"median": "ns"})
    summary = open_result(folder).summary()
    assert summary["warnings"] == ["the second"]
    assert summary["units"] == {"median": "ns"}
    assert (summary["schema"], summary["trials"]) == (SCHEMA, 1)


def test_a_result_that_is_there_is_not_written_over(
    folder: Path, writer: ResultWriter, manifest: dict[str, Any]
) -> None:
    with pytest.raises(VicinalError, match="another study is writing to"):
        ResultWriter.create(folder, manifest)
    with pytest.raises(VicinalError, match="another study is writing to"):
        ResultWriter.resume(folder)
    writer.close()
    before = names_below(folder)
    with pytest.raises(VicinalError, match="is not empty: resume the result in it with --resume"):
        ResultWriter.create(folder, manifest)
    assert names_below(folder) == before
    ResultWriter.resume(folder)[0].close()


def test_what_is_no_result_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.part").write_text("dear")
    with pytest.raises(VicinalError, match=r"manifest[.]json cannot be read \(no such file"):
        ResultWriter.resume(tmp_path)
    assert names_below(tmp_path) == ["letter.part"]


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path, manifest: dict[str, Any]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VicinalError, match=r"no result can be written to .*\(not a directory\)"):
        ResultWriter.create(tmp_path / "file/result", manifest)


def test_a_disk_that_is_full_from_the_start_is_said(
    folder: Path, manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    folder.mkdir()
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=[None, full]))  # the lock's; trials/
    with pytest.raises(VicinalError, match=r"no result can be .* \(no space left on device\)"):
        ResultWriter.create(folder, manifest)


# Events of the writer


def checked(folder: Path) -> Result:
    """Check that every kept trial is as result_writer.py wrote it."""
    result = open_result(folder)
    assert result.problems == []
    for stored in result.trials:
        if result_writer.failed(stored.number):
            (name,) = stored.outputs
            assert result.output(stored, name).encode() == result_writer.output_of(stored.number)
        else:
            assert_equal(list(result.series(stored)), result_writer.content_of(stored.number))
    return result


def start_writer(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, WRITER, folder], stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_loses_no_trial_that_was_kept(folder: Path, writer: ResultWriter) -> None:
    writer.close()
    chance = random.Random(3)
    parts = kills = 0
    # On a busy machine, all first kills may come between two files of the writer.
    while kills < KILLS or (parts == 0 and kills < 10 * KILLS):
        kills += 1
        with start_writer(folder) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(chance.random() / 20)
            process.kill()
            kept = [int(line) for line in [first, *process.stdout] if line.endswith("\n")]
        parts += any(name.endswith(".part") for name in names_below(folder))
        assert [stored.number for stored in checked(folder).trials][: kept[-1]] == list(
            range(1, kept[-1] + 1)
        )
    assert parts > 0, "no kill hit a file that was being written: make SAMPLES more"
    again, result = ResultWriter.resume(folder)
    again.close()
    assert len(result.trials) >= KILLS
    wanted = {".lock", "manifest.json"}
    for stored in result.trials:
        number = f"{stored.number:06}"
        failed = result_writer.failed(stored.number)
        other = f"outputs/{number}.stdout" if failed else f"samples/{number}.parquet"
        wanted |= {f"trials/{number}.json", other}
    assert set(names_below(folder)) == wanted


def test_resume_removes_what_belongs_to_no_trial(folder: Path, writer: ResultWriter) -> None:
    """If a writer is killed before it writes a trial's own file, the trial's other files stay."""
    writer.add(TRIAL, [series(5)])
    writer.add_failure(TRIAL, "it hung", {"stdout": b"half a li"})
    writer.close()
    before = names_below(folder)
    left = ("samples/000003.parquet", "outputs/000003.stdout", "trials/000003.json.part")
    for name in left:
        (folder / name).write_bytes(b"half")
    assert set(names_below(folder)) == {*before, *left}
    ResultWriter.resume(folder)[0].close()
    assert names_below(folder) == before


def test_no_trial_is_written_over_where_an_earlier_one_was_lost(
    folder: Path, writer: ResultWriter
) -> None:
    for value in (5, 6, 7):
        writer.add(TRIAL, [series(value)])
    writer.close()
    trial_file(folder, 2).unlink()
    again, _ = ResultWriter.resume(folder)
    with again:
        assert again.add(TRIAL, [series(8)]).number == 4
    result = open_result(folder)
    values = {stored.number: next(result.series(stored)).nanoseconds[0] for stored in result.trials}
    assert values == {1: 5, 3: 7, 4: 8}


def test_ctrl_c_in_the_middle_leaves_nothing_of_a_trial(
    folder: Path, writer: ResultWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.add(TRIAL, [series(5)])
    before = names_below(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            writer.add(TRIAL, [series(6)])
    assert names_below(folder) == before
    assert writer.add(TRIAL, [series(7)]).number == 2
    assert open_result(folder).problems == []


def test_a_full_disk_costs_the_trial_that_does_not_fit(folder: Path, writer: ResultWriter) -> None:
    """The disk is a tmpfs in a separate mount namespace; the writer fills it with trials."""
    writer.close()
    inside = folder.parent / "small"
    inside.mkdir()
    script = (
        'mount -t tmpfs -o size=512k none "$2" && cp -r "$1" "$2" && "$3" "$4" "$2/result" && '
        'cp -r "$2/result" "$1-full"'
    )
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    done = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", folder, inside, sys.executable, WRITER],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *kept, error = done.stdout.splitlines()
    assert (
        "cannot be written (no space left on device); all that was stored before is complete"
        in error
    )
    assert error.endswith("free space there and resume with --resume")
    full = folder.with_name("result-full")
    assert [stored.number for stored in checked(full).trials] == [int(line) for line in kept]
    assert len(kept) > 2
    assert not [name for name in names_below(full) if name.endswith(".part")]
    # With room, the writer goes on where it stopped.
    again, result = ResultWriter.resume(full)
    with again:
        assert again.add(TRIAL, [series(5)]).number == len(kept) + 1
    assert len(result.trials) == len(kept)


# Events of the folder


def test_a_newer_result_is_refused_and_named(folder: Path, writer: ResultWriter) -> None:
    del writer
    edit(folder / "manifest.json", lambda values: values.update(schema=SCHEMA + 1))
    newer = (
        rf"manifest[.]json was written by a newer Vicinal \(schema {SCHEMA + 1}; this version reads"
    )
    with pytest.raises(VicinalError, match=newer):
        open_result(folder)


def damage_json(path: Path) -> None:
    path.write_text(path.read_text()[:50])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (damage_json, r"000002[.]json is damaged"),
        (
            Path.unlink,
            r"000002[.]json is missing: .*measure the trial again with vicinal study run --resume",
        ),
        (lambda path: path.write_bytes(b"\xff\xfe"), r"000002[.]json is damaged"),
        (
            lambda path: path.write_text("[]"),
            r"000002[.]json is damaged .the file is not a trial, which has keys and values.",
        ),
        (lambda path: path.write_text("{}"), r"000002[.]json is damaged .the file has no \w+"),
        (
            lambda path: edit(path, lambda values: values.update(block=-1)),
            r"damaged \(block cannot be -1\)",
        ),
        (lambda path: edit(path, lambda values: values.update(number=9)), "contains the number 9"),
        (lambda path: edit(path, lambda values: values.update(schema=99)), "newer Vicinal"),
    ],
)
def test_a_damaged_trial_leaves_the_others(
    folder: Path, writer: ResultWriter, damage: Callable[[Path], object], problem: str
) -> None:
    for value in (5, 6, 7):
        writer.add(TRIAL, [series(value)])
    damage(trial_file(folder, 2))
    result = open_result(folder)
    assert [stored.number for stored in result.trials] == [1, 3]
    (found,) = result.problems
    with pytest.raises(VicinalError, match=problem):
        raise found
    assert [next(result.series(stored)).nanoseconds[0] for stored in result.trials] == [5, 7]


def test_a_missing_last_trial_is_known_from_the_summary(folder: Path, writer: ResultWriter) -> None:
    for value in (5, 6):
        writer.add(TRIAL, [series(value)])
    writer.write_summary({}, {})
    trial_file(folder, 2).unlink()
    (problem,) = open_result(folder).problems
    assert "000002.json is missing" in str(problem)
    damage_json(folder / "summary.json")
    result = open_result(folder)
    assert result.problems == []
    with pytest.raises(VicinalError, match=r"summary[.]json is damaged"):
        result.summary()


def test_missing_trials_are_not_taken_for_none(folder: Path, writer: ResultWriter) -> None:
    writer.add(TRIAL, [series(5)])
    shutil.rmtree(folder / "trials")
    result = open_result(folder)
    assert result.trials == []
    (problem,) = result.problems
    assert str(problem).endswith("trials is missing: copy the whole folder again")


def test_missing_samples_leave_the_others(folder: Path, writer: ResultWriter) -> None:
    for value in (5, 6):
        writer.add(TRIAL, [series(value)])
    samples_file(folder, 1).unlink()
    result = open_result(folder)
    with pytest.raises(
        VicinalError, match=r"000001[.]parquet cannot be read .*: copy the file again"
    ):
        list(result.series(result.trials[0]))
    assert_equal(list(result.series(result.trials[1])), [series(6)])


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_no_damaged_byte_of_samples_goes_unnoticed(
    folder: Path, manifest: dict[str, Any], data: st.DataObject
) -> None:
    if not folder.exists():
        with ResultWriter.create(folder, manifest) as writer:
            writer.add(TRIAL, result_writer.content_of(1))
    path = samples_file(folder, 1)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
    damaged = data.draw(st.sampled_from([whole[:at], whole[:at] + flipped + whole[at + 1 :]]))
    path.write_bytes(damaged)
    try:
        result = open_result(folder)
        with pytest.raises(VicinalError, match="is damaged: its checksum does not match"):
            list(result.series(result.trials[0]))
    finally:
        path.write_bytes(whole)


# Size


@pytest.mark.parametrize(
    "count", [1, *(pytest.param(n, marks=pytest.mark.long) for n in (10, 1000))]
)
def test_no_work_is_done_for_each_of_ten_million_samples(folder: Path, count: int) -> None:
    """A separate process measures its memory; one series with all samples is the worst case."""
    done = subprocess.run(
        [sys.executable, HERE / "result_large.py", folder, str(count), "--calls"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": package_path()},
    )
    measured = json.loads(done.stdout)
    print(measured)
    assert measured["samples"] == 10_000_000
    assert measured["calls"] < LARGE_CALLS + SERIES_CALLS * count
    assert measured["memory_bytes"] < LARGE_BYTES
