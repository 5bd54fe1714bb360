"""Studies that Ctrl-C or a kill ends in the middle, and that --resume continues."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal
from study_support import clusters_left

from vicinal.labs.study.result.reading import open_result

STUDY = """\
name: ended
title: A study that is ended
question: What is left of it?
source: Vicinal
environments:
  - name: network
    cluster: {nodes: [{name: node, count: 2}], region: none}
    path: network
  - name: region
    cluster: {nodes: [{name: node, count: 2}], region: {members: 8}}
workloads:
  - name: latency
    driver: record
    operation: latency
    quantity: latency
    sizes: [8]
    samples: 100000
    seconds: 0.02
design:
  trials: 2
  comparisons:
    - {base: network, test: region}
"""
NATIVE_STUDY = """\
name: other
title: Another study
question: Does it keep its hands off?
source: Vicinal
environments:
  - name: here
    cluster: {nodes: [{name: host, backend: host}], region: none}
    path: shared-memory
workloads:
  - name: latency
    driver: record
    operation: latency
    quantity: latency
    sizes: [8]
    samples: 100
design:
  trials: 1
  comparisons: []
"""
PLANNED = 6
"""Two blocks of two environments and the control."""
SECONDS = 120.0


@pytest.fixture(autouse=True)
def _own_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of its own: studies of other tests remove what killed ones left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "ended.yaml"
    path.write_text(STUDY)
    return path


def begin(study_file: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the command, and return when it has kept a trial."""
    command = [sys.executable, "-m", "vicinal", "study", "run", str(study_file)]
    running = subprocess.Popen(
        [*command, "--output", str(folder), "--seed", "5"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + SECONDS
    while not (folder / "trials" / "000001.json").exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return running


def check_whole(folder: Path, vicinal: Vicinal, study_file: Path) -> None:
    """Check that --resume completes the result, with each launch of the plan once."""
    before = {each.number: each.trial for each in open_result(folder).trials}
    assert 1 <= len(before) < PLANNED
    done = vicinal("study", "run", study_file, "--output", folder, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"{PLANNED} trials are in {folder}" in done.stdout
    result = open_result(folder)
    assert not result.problems
    keys = [(e.trial.block, e.trial.environment, e.trial.workload) for e in result.trials]
    assert len(set(keys)) == len(keys) == PLANNED
    assert {each.number: each.trial for each in result.trials[: len(before)]} == before
    assert result.summary()["trials"] == PLANNED
    assert clusters_left(folder) == []


@pytest.mark.long
def test_ctrl_c_keeps_what_is_done(study_file: Path, tmp_path: Path, vicinal: Vicinal) -> None:
    folder = tmp_path / "result"
    running = begin(study_file, folder)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + signal.SIGINT, said
    assert f"--resume --output {folder}" in said
    assert clusters_left(folder) == []
    check_whole(folder, vicinal, study_file)


def test_a_killed_study_is_swept_and_gone_on_with(
    study_file: Path, tmp_path: Path, vicinal: Vicinal
) -> None:
    folder = tmp_path / "result"
    running = begin(study_file, folder)
    running.kill()
    running.communicate(timeout=SECONDS)
    left = clusters_left(folder)
    assert left != []
    again = f"vicinal study run {study_file} --resume --output {folder}"
    note = (
        f"Note: the study ended was killed and left {', '.join(left)}: continue with `{again}`, or "
        f"remove the rest with `vicinal down {left[0]}`"
    )
    for command in (("study", "list"), ("status", left[0])):
        assert note in vicinal(*command).stdout.splitlines()
    check_whole(folder, vicinal, study_file)
    assert "was killed" not in vicinal("study", "list").stdout


@pytest.mark.long
def test_another_study_takes_away_what_a_killed_one_left_and_nothing_else(
    study_file: Path, tmp_path: Path, vicinal: Vicinal
) -> None:
    """A running study keeps its nodes, even while it is stopped by SIGSTOP."""
    native = tmp_path / "native.yaml"
    native.write_text(NATIVE_STUDY)
    killed, still = tmp_path / "killed", tmp_path / "still"
    running = begin(study_file, killed)
    running.kill()
    running.communicate(timeout=SECONDS)
    (left,) = clusters_left(killed)
    standing = begin(study_file, still)
    try:
        standing.send_signal(signal.SIGSTOP)
        assert clusters_left(killed) == []  # the second study removed them first
        there = clusters_left(still)
        assert there != []
        assert "was killed" not in vicinal("study", "list").stdout
        done = vicinal("study", "run", native, "--output", tmp_path / "native")
        assert done.returncode == 0, done.stderr
        assert "removing" not in done.stderr
        assert clusters_left(still) == there
    finally:
        standing.send_signal(signal.SIGCONT)
    _, said = standing.communicate(timeout=SECONDS)
    assert standing.returncode == 0, said
    assert f"removing {left}, which the study ended left when it was killed" in said
    check_whole(killed, vicinal, study_file)


@pytest.mark.long
def test_a_launch_has_the_time_that_is_given(
    study_file: Path, tmp_path: Path, vicinal: Vicinal
) -> None:
    """--timeout sets it; --resume keeps it, and may change it."""
    study_file.write_text(
        STUDY.replace("seconds: 0.02", "seconds: 30").replace("100000", "10000000")
    )
    folder = tmp_path / "result"
    part = ["--trials", 1, "--only", "network/*", "--timeout", 2]
    run = ["study", "run", study_file, "--output", folder, "--quiet"]
    done = vicinal(*run, *part)
    assert done.returncode == 1
    limit = (
        "the limit of a launch: allow more with --timeout, or find out what the program waits for"
    )
    assert f"the job did not end within 2 s, {limit}" in done.stderr
    assert f"the job did not end within 2 s, {limit}" in vicinal(*run, "--resume").stderr
    study = vicinal("study", "run", study_file, "--resume", "--output", folder, "--timeout", 0)
    assert study.returncode == 2
    assert "--timeout" in study.stderr
    (manifest,) = folder.glob("manifest.json")
    assert json.loads(manifest.read_text())["asked"]["timeout"] == 2


@pytest.mark.long
def test_what_is_gone_on_with_is_the_same_study(
    study_file: Path, tmp_path: Path, vicinal: Vicinal
) -> None:
    """The options of the first command still apply; --resume refuses another study."""
    folder = tmp_path / "result"
    part = ["--trials", 1, "--only", "region/*"]
    done = vicinal("study", "run", study_file, "--output", folder, "--quiet", *part)
    assert done.returncode == 0, done.stderr
    assert "block 1" not in done.stderr  # quiet: only problems
    again = vicinal("study", "run", study_file, "--output", folder, "--resume")
    assert again.returncode == 0, again.stderr
    assert "1 trials" in again.stdout
    study_file.write_text(STUDY.replace("sizes: [8]", "sizes: [16]"))
    refused = vicinal("study", "run", study_file, "--output", folder, "--resume")
    assert refused.returncode == 1
    assert "was begun, in its workloads:" in refused.stderr
    missing = vicinal("study", "run", study_file, "--output", tmp_path / "none", "--resume")
    assert missing.returncode == 1
    assert "manifest.json" in missing.stderr
