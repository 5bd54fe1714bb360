"""The command behind `make check`, `make check-all`, `make check-times` and .ci/run."""

import argparse
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks import changes, plan, records, running, suites
from checks.leftovers import remove_leftovers
from checks.records import Record
from checks.suites import CheckError, Suite
from checks.whole import Whole

TREE = Path(__file__).resolve().parents[2]
ROOM_BYTES = 4 << 30
"""Builds with sanitizers and guests' images take about 3 GiB."""


def main() -> int:
    """Run the command. Returns 0 if all is good, 1 after a failure, 2 for misuse, 130 on Ctrl-C."""
    options = _options()
    started = float(os.environ.get("CHECK_STARTED") or time.time())
    if options.what in ("times", "list", "plan"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may end first
    try:
        known = suites.read_suites(TREE)
        match options.what:
            case "times":
                return show_times()
            case "list":
                return show_suites(known)
            case "plan":
                return show_plan(_ci_plan(known, options.hours, spent=0))
        with _alone():
            match options.what:
                case "common":
                    chosen = [(each, "always") for each in known if each.tier == "common"]
                    return run(known, chosen, started)
                case "only":
                    names = [name for words in options.suites for name in words.split(",") if name]
                    chosen = [(each, "asked for") for each in suites.choose(known, names)]
                    return run(known, chosen, started)
                case "all":
                    return run_all(known, started, options.again)
            return run_ci(known, options.hours, started)
    except CheckError as error:
        for line in str(error).splitlines():
            print(f"check: error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("check: error: interrupted: nothing of it runs any more", file=sys.stderr)
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="checks", description=__doc__)
    words = parser.add_subparsers(dest="what", required=True)
    words.add_parser("common", help="the suites that are always run")
    whole = words.add_parser("all", help="all suites that are not good already")
    whole.add_argument("--again", action="store_true", help="run the good suites, too")
    only = words.add_parser("only", help="suites by name")
    only.add_argument("suites", nargs="+")
    for name, text in (("ci", "the common suites, and long ones"), ("plan", "what ci would run")):
        ci = words.add_parser(name, help=text)
        ci.add_argument("--hours", type=float, default=changes.HOURS, help="hours of changes")
    words.add_parser("times", help="the slowest suites and tests of the last run")
    words.add_parser("list", help="all suites")
    return parser.parse_args()


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the tree's lock, and check the disk's room. SIGTERM interrupts as Ctrl-C does."""
    free = shutil.disk_usage(TREE).free
    if free < ROOM_BYTES:
        raise CheckError(
            f"the disk of {TREE} has {free >> 20} MiB left, and checks need {ROOM_BYTES >> 20}: "
            "make room, for example with `make clean`"
        )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (running.directory(TREE) / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckError("another check runs in this tree: wait for its end") from error
        try:
            yield
        finally:
            if left := remove_leftovers():
                print(f"check: removed what killed tests left in /dev/shm: {', '.join(left)}")


def run(known: list[Suite], chosen: list[tuple[Suite, str]], started: float) -> int:
    """Run suites as one run, whose times `make check-times` shows."""
    for old in running.directory(TREE).glob("*.xml"):
        old.unlink()
    done: list[Record] = []
    running.run_suites(chosen, TREE, _recorder(known, done), started)
    return summary(done, started)


def _recorder(known: list[Suite], done: list[Record]) -> running.Keep:
    """Returns a function that notes a result, for this run and as the last result of its suite."""
    whole = Whole(TREE, known)

    def keep(record: Record) -> None:
        done.append(record)
        records.write_records(_times(), done)
        whole.keep(record)

    return keep


def _times() -> Path:
    return running.directory(TREE) / "times.json"


def run_all(known: list[Suite], started: float, again: bool) -> int:
    """Run every suite that is not good already, or every suite if `again`."""
    kept = Whole(TREE, known)
    good = {} if again else dict(kept.good(TREE, known))
    for suite, record in good.items():
        print(f"{suite.name}: good at commit {record.commit[:12]}, nothing near it changed since")
    sys.stdout.flush()
    rest = [(each, "all suites") for each in known if each not in good]
    running.run_suites(rest, TREE, kept.keep, started)
    return summary(kept.records, started)


def _ci_plan(known: list[Suite], hours: float, spent: float) -> plan.Plan:
    base = changes.base_of(TREE, hours)
    since = f"commit {base[:12]}" if base else "the first commit"
    print(f"\n==> long suites, by what changed since {since}, {hours:g} hours ago", flush=True)
    return plan.make_plan(TREE, known, base, spent)


def run_ci(known: list[Suite], hours: float, started: float) -> int:
    """Run the common suites, and then the long suites for which there is time."""
    status = run(known, [(each, "always") for each in known if each.tier == "common"], started)
    done = records.read_records(_times())
    chosen = _ci_plan(known, hours, time.time() - started)
    show_plan(chosen)
    keep = _recorder(known, done)
    late = []
    for choice in chosen.run:
        if plan.still_fits(choice, time.time() - started):
            latest = started + plan.LATEST_SECONDS
            running.run_suites([(choice.suite, choice.why)], TREE, keep, started, latest)
        else:
            why = f"{choice.why}; earlier suites took longer than their figures"
            late.append(plan.Choice(choice.suite, why))
    print("\n==> left out")
    for choice in (*late, *chosen.left):
        print(f"    {choice.suite.name}: {choice.why}")
    return max(summary(done, started), status)


def show_plan(chosen: plan.Plan) -> int:
    """Print what runs, what does not run, and why."""
    for word, choices in (("run", chosen.run), ("leave out", chosen.left)):
        for choice in choices:
            print(f"    {word} {choice.suite.name} ({choice.suite.seconds} s): {choice.why}")
    sys.stdout.flush()
    return 0


def summary(done: list[Record], started: float) -> int:
    """Print the results of suites, and what was skipped. Returns 1 if a suite failed."""
    print("\n==> suites")
    for record in done:
        print(f"    {record.suite:<20} {record.seconds:7.0f} s  {record.result}")
    print(f"    {'all':<20} {time.time() - started:7.0f} s")
    reasons = records.skips(records.read_cases(running.directory(TREE)))
    print(f"==> skipped: {sum(count for _, count in reasons)} tests")
    for reason, count in reasons:
        print(f"    {count:5} {reason}")
    bad = [record for record in done if not record.is_good]
    for record in bad:
        print(f"check: error: {record.suite}: {record.result}: see above, mend it and run it again")
    sys.stdout.flush()
    return bool(bad)


def show_times() -> int:
    """Print the slowest suites, files and tests of the last run."""
    directory = running.directory(TREE)
    done = records.read_records(directory / "times.json")
    if not done:
        raise CheckError("nothing was run yet in this tree: run `make check` first")
    cases = list(records.read_cases(directory))
    print("suites, by seconds")
    for record in sorted(done, key=lambda each: -each.seconds):
        print(f"{record.seconds:9.1f}  {record.suite}: {record.result}")
    print("files of tests, by seconds of all their tests")
    for name, seconds in records.slowest_files(cases)[:20]:
        print(f"{seconds:9.1f}  {name}")
    print("tests, by seconds")
    for case in sorted(cases, key=lambda each: -each.seconds)[:30]:
        print(f"{case.seconds:9.1f}  {case.name}")
    return 0


def show_suites(known: list[Suite]) -> int:
    """Print all suites with their figures."""
    for suite in known:
        what = ", ".join(suite.folders) or "; ".join(" ".join(each) for each in suite.commands)
        print(f"{suite.name:<20} {suite.tier:<8} {suite.seconds:5} s  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
