"""Add trials to a result until killed, and print the number of each trial that is kept.

    result_writer.py FOLDER

A trial's content follows from its number: see content_of(). Every third trial is a failed one.
"""

import sys
from itertools import count
from pathlib import Path

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.labs.study.result.layout import Trial
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter

STARTED = "2026-11-23T00:00:00+00:00"
SAMPLES = 5000


def content_of(number: int) -> list[Series]:
    chance = np.random.default_rng(number)
    return [
        Series(size, rank, 2, chance.integers(0, 1 << 40, SAMPLES))
        for size in (8, 4096)
        for rank in range(2)
    ]


def failed(number: int) -> bool:
    return number % 3 == 0


def output_of(number: int) -> bytes:
    return f"output {number}\n".encode() * 1000


def add_until_the_end(folder: Path) -> None:
    writer, result = ResultWriter.resume(folder)
    for number in count(len(result.trials) + 1):
        trial = Trial("native", "latency", number, STARTED, 1.0)
        if failed(number):
            stored = writer.add_failure(trial, "it hung", {"stdout": output_of(number)})
        else:
            stored = writer.add(trial, content_of(number))
        print(stored.number, flush=True)


if __name__ == "__main__":
    try:
        add_until_the_end(Path(sys.argv[1]))
    except VicinalError as problem:
        print(f"error: {problem}", flush=True)
