"""Compare this checkout with one of its commits: latency, message rate and bandwidth.

build/venv/bin/python tests/bench/before_after.py COMMIT [--pairs 15] [--bind]
                                               [--fabric 100] [--network]

With --fabric two processes exchange messages by libfabric alone (programs/fabric/exchange.c), this
number of times for each side. A run takes a third of a second, so differences of 2 % can be told.
With --network too, they have no region and exchange messages over tcp.
Without it, both MPIs run in isolated nodes, and a pair of jobs takes some 20 s.

Each side has its own Python package, provider and region. Both use this checkout's measuring
programs. The commit is built in build/before-COMMIT. The sides alternate, and so does the first
side of a pair. Prints the median of the pairs' ratios (after / before) with an interval of at least
95 %, from the order of the ratios (sign test). Not a test: run it on a quiet machine.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
MPIS = ("mpich", "openmpi")
# Program, bytes, field of the output. A ratio below 1 is better for latency, above 1 for the rest.
ROWS = {
    "latency 8 B": ("latency", 8, "microseconds"),
    "messages a second 8 B": ("bandwidth", 8, "messages_per_second"),
    "bandwidth 64 KiB": ("bandwidth", 65536, "megabytes_per_second"),
    "bandwidth 1 MiB": ("bandwidth", 1048576, "megabytes_per_second"),
}
SIZES = {"latency": "8", "bandwidth": "8,65536,1048576"}
# Bytes and window of programs/fabric/exchange.c. A ratio below 1 is better.
EXCHANGES = {
    "8 B, bounced": (8, 0),
    "8 B, 64 at once": (8, 64),
    "64 KiB, 64 at once": (65536, 64),
    "1 MiB, 64 at once": (1048576, 64),
}


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: it ended with {done.returncode}")
    return done.stdout


def build(commit: str) -> Path:
    """A worktree of the commit with its provider. Tools that both sides share are links."""
    name = run("git", "-C", TREE, "rev-parse", "--short", commit).strip()
    tree = TREE / "build" / f"before-{name}"
    if not tree.exists():
        run("git", "-C", TREE, "worktree", "add", "--detach", tree, name)
    (tree / "build").mkdir(exist_ok=True)
    for shared in ("venv", "mpi", "programs"):
        link = tree / "build" / shared
        if not link.exists():
            link.symlink_to((TREE / "build" / shared).resolve())
    release = tree / "build/release"
    if not (release / "build.ninja").exists():
        run("meson", "setup", release, tree)
    run("ninja", "-C", release, "provider/libvicinal-fi.so")
    return tree


def vicinal(tree: Path, *words: str | Path) -> str:
    return run(
        TREE / "build/venv/bin/python",
        "-m",
        "vicinal",
        *words,
        PYTHONPATH=f"{tree}/src:{tree}",  # older commits have no src
        VICINAL_PROVIDER_DIR=str(tree / "build/release/provider"),
    )


def measure(tree: Path, mpi: str, program: str, options: list[str]) -> dict[int, dict[str, float]]:
    """The medians of a job's repetitions, by size and field."""
    binary = TREE / "build/programs" / mpi / program
    job = ["run", "-n", "2", "--mpi", mpi, *options]
    times = ["--sizes", SIZES[program], "--repetitions", "5", "--seconds", "0.05"]
    output = vicinal(tree, *job, binary, *times)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"size"')]
    fields = {field for _, _, field in ROWS.values()}
    return {
        size: {
            field: statistics.median(each[field] for each in lines if each["size"] == size)
            for field in fields & lines[0].keys()
        }
        for size in {each["size"] for each in lines}
    }


@contextmanager
def regions(sides: Mapping[str, Path]) -> Iterator[Mapping[str, Path]]:
    """A region of each side, as its own package creates it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        found = {side: Path(directory) / side for side in sides}
        for side, path in found.items():
            vicinal(sides[side], "region", "create", path)
        yield found


def exchange(tree: Path, region: Path | None, size: int, window: int) -> float:
    """Nanoseconds of a message between the first two processors that this process may use."""
    cpus = sorted(os.sched_getaffinity(0))
    way = {"VICINAL_REGION": f"file:{region}"} if region else {"VICINAL_NET": "tcp"}
    output = run(
        TREE / "build/programs/fabric/exchange",
        *(str(each) for each in (cpus[0], cpus[1 % len(cpus)], size, window)),
        FI_PROVIDER="vicinal" if region else "vicinal,tcp",
        FI_PROVIDER_PATH=str(tree / "build/release/provider"),
        **way,
    )
    return float(json.loads(output)["nanoseconds"])


def compare_exchanges(sides: Mapping[str, Path], times: int, network: bool) -> None:
    order = list(sides)
    with regions(sides) as region:
        for row, (size, window) in EXCHANGES.items():
            print(f"{row}: {times} pairs", file=sys.stderr)
            found: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(times):
                for side in order if turn % 2 == 0 else reversed(order):
                    path = None if network else region[side]
                    found[side].append(exchange(sides[side], path, size, window))
            ratios = [a / b for a, b in zip(found["after"], found["before"], strict=True)]
            print_row(row, f"{statistics.median(found['after']):.1f} ns", ratios)


def print_row(row: str, of: str, ratios: list[float]) -> None:
    low, high = interval(ratios)
    middle = statistics.median(ratios)
    print(f"{row:22} {of:12} after / before {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


def interval(ratios: list[float]) -> tuple[float, float]:
    """The interval of the median at 95 % or more; with too few ratios, the range of all."""
    ordered = sorted(ratios)
    count = len(ordered)
    left = 0
    while 2 * sum(math.comb(count, k) for k in range(left + 1)) / 2**count <= 0.05:
        left += 1
    left = max(left - 1, 0)
    return ordered[left], ordered[count - 1 - left]


def compare_jobs(sides: Mapping[str, Path], pairs: int, options: list[str]) -> None:
    ratios: dict[tuple[str, str], list[float]] = {}
    for pair in range(pairs):
        order = list(sides) if pair % 2 == 0 else list(sides)[::-1]
        for mpi in MPIS:
            for program in SIZES:
                found = {side: measure(sides[side], mpi, program, options) for side in order}
                for row, (of, size, field) in ROWS.items():
                    if of == program:
                        after, before = (found[side][size][field] for side in ("after", "before"))
                        ratios.setdefault((row, mpi), []).append(after / before)
        print(f"pair {pair + 1} of {pairs}", file=sys.stderr)
    for (row, mpi), values in sorted(ratios.items()):
        print_row(row, mpi, values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--bind", action="store_true", help="pin each rank to a core")
    parser.add_argument("--fabric", type=int, metavar="TIMES", help="by libfabric alone")
    parser.add_argument("--network", action="store_true", help="with --fabric: over tcp")
    arguments = parser.parse_args()
    sides = {"before": build(arguments.commit), "after": TREE}
    if arguments.fabric:
        compare_exchanges(sides, arguments.fabric, arguments.network)
    else:
        compare_jobs(sides, arguments.pairs, ["--bind"] if arguments.bind else [])


if __name__ == "__main__":
    main()
