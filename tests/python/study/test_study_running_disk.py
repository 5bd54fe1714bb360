"""Studies on a full disk: a small file system that only the command sees."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest
from command_support import CHECKOUT

from vicinal.labs.study.result.reading import Result, open_result

SECONDS = 600.0
"""A guard against hangs: a study takes half a minute on an idle machine."""
TRIALS = 8
STUDY = f"""\
name: full
title: A study on a small disk
question: What is left of it?
source: Vicinal
environments:
  - name: here
    cluster: {{nodes: [{{name: host, backend: host}}], region: none}}
    path: shared-memory
workloads:
  - name: latency
    driver: record
    operation: latency
    quantity: latency
    sizes: [8]
    samples: 40000
    seconds: 20  # so many samples also on a busy machine
design:
  trials: {TRIALS}
  comparisons: []
"""

# The process that holds the file system until its input ends.
_HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$0" && echo ready && read -r _'


class SmallDisk:
    """A tmpfs in its own mount namespace, and for an unprivileged user in a user namespace."""

    def __init__(self, mount_point: Path, size: str) -> None:
        self.mount_point = mount_point
        self._size = size
        self._user = os.geteuid() != 0
        self._enter: list[str] = []

    def __enter__(self) -> Self:
        user = ["--user", "--map-root-user"] if self._user else []
        self._holder = subprocess.Popen(
            ["unshare", *user, "--mount", "sh", "-c", _HOLD, str(self.mount_point), self._size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            why = self._holder.communicate()[1].strip()
            pytest.skip(f"no file system can be mounted in a namespace of its own here ({why})")
        namespaces = ["--user", "--preserve-credentials"] if self._user else []
        self._enter = ["nsenter", "--target", str(self._holder.pid), *namespaces, "--mount", "--"]
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def call(self, command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command that sees the small disk."""
        return subprocess.run(
            [*self._enter, *command],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "src")} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def study(
        self, file: Path, folder: Path, *options: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `vicinal study run` on the small disk."""
        command = [sys.executable, "-m", "vicinal", "study", "run", str(file)]
        return self.call([*command, "--quiet", "--output", str(folder), *options], **variables)

    def fill(self, but: int) -> None:
        """Fill the disk except for `but` bytes."""
        done = self.call(["dd", "if=/dev/zero", f"of={self.mount_point}/fill", "bs=4096"])
        assert "No space left" in done.stderr
        self.call(["truncate", "-s", f"-{but}", f"{self.mount_point}/fill"])

    def make_room(self) -> None:
        done = self.call(["mount", "-o", "remount,size=64m", str(self.mount_point)])
        assert done.returncode == 0, done.stderr

    def result(self, folder: Path) -> Result:
        """Open the result of a folder on the small disk."""
        return open_result(Path(f"/proc/{self._holder.pid}/root{folder}"))


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "full.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    with SmallDisk(mount_point, "128k") as small:
        yield small


def check_resumed(disk: SmallDisk, study_file: Path, folder: Path, **variables: str) -> None:
    """Check that with room, --resume completes the result."""
    disk.make_room()
    done = disk.study(study_file, folder, "--resume", **variables)
    assert done.returncode == 0, done.stderr
    assert f"{TRIALS} trials are in {folder}" in done.stdout
    result = disk.result(folder)
    assert not result.problems
    assert sorted(each.trial.block for each in result.trials) == list(range(1, TRIALS + 1))
    assert all(each.failure is None for each in result.trials)
    assert disk.call(["test", "-s", f"{folder}/report/report.html"]).returncode == 0


@pytest.mark.long
def test_a_result_that_fills_its_disk_is_gone_on_with(disk: SmallDisk, study_file: Path) -> None:
    folder = disk.mount_point / "result"
    done = disk.study(study_file, folder)
    assert done.returncode == 1, done.stdout
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"vicinal: error: {folder}/"), done.stderr
    assert (
        "cannot be written (no space left on device); all that was stored before is complete"
        in line
    )
    assert line.endswith("free space there and resume with --resume")
    before = disk.result(folder)
    assert 0 < len(before.trials) < TRIALS
    assert not before.problems
    samples = [next(iter(before.series(each))).nanoseconds for each in before.trials]
    assert all(len(each) > 0 for each in samples)
    check_resumed(disk, study_file, folder)
    after = disk.result(folder)
    assert after.trials[: len(before.trials)] == before.trials
    kept = [next(iter(after.series(each))).nanoseconds for each in after.trials[: len(samples)]]
    assert [each.tolist() for each in kept] == [each.tolist() for each in samples]


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "room", "said", "remedy"),
    [
        # If there is no room from the start, Python chooses another directory.
        ("TMPDIR", 4096, "the output of programs cannot be written", "or let TMPDIR name another"),
        ("XDG_STATE_HOME", 0, "cannot be written (no space left on device)", "free space there"),
    ],
)
def test_other_places_that_are_full(
    disk: SmallDisk,
    study_file: Path,
    tmp_path: Path,
    variable: str,
    room: int,
    said: str,
    remedy: str,
) -> None:
    """No trial counts as failed, and no output counts as garbage."""
    folder = tmp_path / "result"
    disk.fill(room)
    there = {variable: str(disk.mount_point)}
    done = disk.study(study_file, folder, **there)
    assert done.returncode == 1, done.stdout
    line = done.stderr.splitlines()[-1]
    assert line.startswith("vicinal: error: ")
    assert said in line
    assert remedy in line
    assert disk.result(folder).trials == []
    check_resumed(disk, study_file, folder, **there)
