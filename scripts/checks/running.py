"""Runs one suite. Its output is printed, or written to a file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from checks.records import Record
from checks.suites import CheckError, Suite

Keep = Callable[[Record], None]
"""Is given each record at once."""

NOTHING_RAN = 5
"""pytest's exit status if no test was chosen."""
GUARD_SECONDS = 1800
"""A guard against hangs, as is three times a suite's figure: guests-hosts once took 900 s."""


def directory(tree: Path) -> Path:
    """The folder of records and output. Made if it is missing."""
    path = tree / "build/check"
    path.mkdir(parents=True, exist_ok=True)
    return path


def commands_of(suite: Suite, tree: Path) -> list[list[str]]:
    """The commands of a suite, which run one after the other."""
    if suite.commands:
        return [list(command) for command in suite.commands]
    command = ["build/venv/bin/pytest", "-q", "--durations=10"]
    command += [f"--junitxml={directory(tree) / suite.name}.xml", "-o", "junit_family=xunit1"]
    if suite.mark:
        command += ["-m", suite.mark]
    if suite.workers:
        command += ["-n", str(suite.workers), "--dist", "loadfile"]
    return [[*command, *suite.folders]]


class Running:
    """A running suite. It has its own process group, so that none of its processes outlives it."""

    def __init__(self, suite: Suite, tree: Path, why: str) -> None:
        self.suite, self._tree, self._why = suite, tree, why
        self._process: subprocess.Popen[bytes] | None = None
        self._began, self._clock = time.monotonic(), time.time()
        self._status = 0
        self._left = commands_of(suite, tree)
        (directory(tree) / f"{suite.name}.xml").unlink(missing_ok=True)
        self._log: IO[bytes] | None = None
        if suite.low_priority:
            self._log = (directory(tree) / f"{suite.name}.log").open("wb")

    def start(self) -> None:
        """Start the suite. A caller that ends it must already be there: see end()."""
        self._next()

    def _next(self) -> None:
        if not self._left:
            self._process = None
            return
        command = self._left.pop(0)
        if self.suite.low_priority:
            command = ["nice", "-n", "10", *command]
        else:
            print(f"    {' '.join(command)}", flush=True)
        # Otherwise pytest would rewrite the assertions of each file again, in each process.
        environment = os.environ.copy()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            with _held_back():
                self._process = subprocess.Popen(
                    command,
                    cwd=self._tree,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT if self._log else None,
                    start_new_session=True,
                    preexec_fn=_let_through,
                )
        except OSError as error:
            raise CheckError(
                f"{self.suite.name}: {command[0]}: {error.strerror}: run `make all` first"
            ) from error

    def wait(self, latest: float | None = None) -> Record:
        """Wait until the suite has ended. Ends it if it hangs, or at `latest` (of time())."""
        guard = max(3 * self.suite.seconds, GUARD_SECONDS)
        if latest is not None:
            guard = min(guard, max(1, round(latest - self._clock)))
        result = "passed"
        while self._process is not None and result == "passed":
            try:
                status = self._process.wait(max(1.0, self._began + guard - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.end()
                result = f"hung: ended after {guard} s"
                break
            self._end_group(signal.SIGKILL)
            if status:
                self._process = None
            if status == NOTHING_RAN and not self.suite.commands:
                result = "failed: no test was chosen"
            elif status:
                result = f"failed: exit status {status}"
            else:
                self._next()
        seconds = time.monotonic() - self._began
        if self._log is not None:
            self._log.close()
            log = directory(self._tree) / f"{self.suite.name}.log"
            # The suite may have ended long before, when it wrote its last line.
            seconds = min(seconds, max(0.0, log.stat().st_mtime - self._clock))
            sys.stdout.flush()
            sys.stdout.buffer.write(log.read_bytes())
            sys.stdout.flush()
        return Record(self.suite.name, self.suite.tier, self._why, round(seconds, 1), result)

    def _end_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def end(self) -> None:
        """End the suite and all its processes, which may clean up for half a minute."""
        if self._process is None:
            return
        self._end_group(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._end_group(signal.SIGKILL)
        self._process.wait()
        self._process = None


_SIGNALS = {signal.SIGINT, signal.SIGTERM}


@contextmanager
def _held_back() -> Iterator[None]:
    """Hold signals back: otherwise a process that was just started could be left behind."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        _let_through()


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def run_suites(
    chosen: Sequence[tuple[Suite, str]],
    tree: Path,
    keep: Keep,
    started: float,
    latest: float | None = None,
) -> list[Record]:
    """Run suites one after the other. Meanwhile, suites of low priority run.

    `keep` gets each record at once. A suite that still runs at `latest` is ended and counts as
    hung. If interrupted, ends all running suites and raises the interruption again.
    """
    background = [Running(suite, tree, why) for suite, why in chosen if suite.low_priority]
    records = []
    current: Running | None = None
    try:
        for running in background:
            running.start()
        for suite, why in chosen:
            if suite.low_priority:
                continue
            minutes = (time.time() - started) / 60
            print(f"\n==> {suite.name}: {why} (minute {minutes:.0f})", flush=True)
            current = Running(suite, tree, why)
            current.start()
            records.append(_ended(current.wait(latest), keep))
        for running in background:
            print(f"\n==> {running.suite.name}, which ran at low priority", flush=True)
            records.append(_ended(running.wait(latest), keep))
    finally:
        for running in (*background, *([current] if current else [])):
            running.end()
    return records


def _ended(record: Record, keep: Keep) -> Record:
    print(f"    {record.result}, {record.seconds:.0f} s", flush=True)
    keep(record)
    return record
